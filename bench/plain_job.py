"""The job of the pipeline benchmark as a careful engineer writes it by hand: no Headrace in it but the session.

    python plain_job.py BOOTSTRAP TOPIC DIRECTORY ROWS_PER_BATCH

With 0 rows a batch it streams until SIGTERM, otherwise it ends when it has caught up. The session is the one that
Headrace starts, with its settings and jars, so that what is compared is the job and the broker.
"""

import sys
import time

from pyspark.sql import functions as F  # noqa: N812

from headrace.streaming.session import running

SCHEMA = "id long, customer string, amount double, at timestamp, note string"


def main(bootstrap: str, topic: str, directory: str, rows_per_batch: int) -> None:
    with running() as spark:
        source = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
        )
        if rows_per_batch:
            source = source.option("maxOffsetsPerTrigger", rows_per_batch)
        parsed = source.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
        sink = parsed.writeStream.format("delta").option("checkpointLocation", f"{directory}/checkpoint")
        if rows_per_batch:
            sink = sink.trigger(availableNow=True)
        query = sink.start(f"{directory}/table")
        while query.isActive:
            time.sleep(0.1)  # not awaitTermination: a signal would wait with it
        if (failure := query.exception()) is not None:
            raise failure


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
