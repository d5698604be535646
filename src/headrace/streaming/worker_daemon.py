"""The process that Spark's Python workers are forked from, with what every worker imports already imported.

Spark's own daemon imports nothing before it forks, since pandas and pyarrow start threads, which a fork would lose.
What is imported here starts none: a worker is ready half a second sooner. It runs as a module of its own, on this
machine only; a cluster's executors use Spark's.
"""

import confluent_kafka  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import headrace.streaming.topic_task  # noqa: F401

if __name__ == "__main__":
    manager()
