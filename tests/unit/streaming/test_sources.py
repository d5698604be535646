"""The options with which a topic is read."""

import headrace as hr
from headrace.streaming.sources import RECORDS_PER_TASK_MAX, kafka_options


def test_a_large_range_of_one_partition_is_split_so_that_all_cores_read() -> None:
    options = kafka_options(hr.topic("orders", schema="id long"), "localhost:9092", {})
    assert options["maxRecordsPerPartition"] == str(RECORDS_PER_TASK_MAX)


def test_what_the_file_says_of_a_topic_has_the_last_word() -> None:
    orders = hr.topic("orders", schema="id long", options={"maxRecordsPerPartition": "7"})
    options = kafka_options(orders, "localhost:9092", {"maxRecordsPerPartition": "8", "kafka.client.id": "x"})
    assert (options["maxRecordsPerPartition"], options["kafka.client.id"]) == ("7", "x")


def test_a_fetch_at_the_end_of_a_topic_holds_up_no_other_request_of_its_task() -> None:
    orders = hr.topic("orders", schema="id long")
    assert int(kafka_options(orders, "localhost:9092", {})["kafka.fetch.max.wait.ms"]) < 100
    assert kafka_options(orders, "x:1", {"kafka.fetch.max.wait.ms": "250"})["kafka.fetch.max.wait.ms"] == "250"
