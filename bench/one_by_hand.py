"""One topic to one Delta table, as a careful engineer writes it in plain PySpark; ends when it has caught up.

python one_by_hand.py JARS DRIVER_MEMORY BOOTSTRAP DIRECTORY TOPIC
"""

import sys

from by_hand import CORRUPT, parsed, records, session

SCHEMA = "customer string, page string, at timestamp"


def main(jars: str, driver_memory: str, bootstrap: str, directory: str, topic: str) -> None:
    spark = session(jars, driver_memory)
    rows = parsed(records(spark, bootstrap, topic), SCHEMA).where(f"row.{CORRUPT} is null").select("row.*")
    (
        rows.drop(CORRUPT)
        .writeStream.format("delta")
        .option("checkpointLocation", f"{directory}/checkpoints/visits")
        .trigger(availableNow=True)
        .start(f"{directory}/tables/visits")
        .awaitTermination()
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
