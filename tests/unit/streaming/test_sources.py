"""The options with which a topic is read."""

import headrace as hr
from headrace.streaming.sources import RECORDS_A_TASK_MAX, kafka_options


def test_a_large_range_of_one_partition_is_split_so_that_all_cores_read() -> None:
    options = kafka_options(hr.topic("orders", schema="id long"), "localhost:9092", {})
    assert options["maxRecordsPerPartition"] == str(RECORDS_A_TASK_MAX)


def test_what_the_file_says_of_a_topic_has_the_last_word() -> None:
    orders = hr.topic("orders", schema="id long", options={"maxRecordsPerPartition": "7"})
    options = kafka_options(orders, "localhost:9092", {"maxRecordsPerPartition": "8", "kafka.client.id": "x"})
    assert (options["maxRecordsPerPartition"], options["kafka.client.id"]) == ("7", "x")
