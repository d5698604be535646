"""What a failure is, and how long to go on trying."""

from __future__ import annotations

import pytest

from headrace.streaming.supervision import Failure, Patience, classify, wait_s

PATIENCE = Patience(restarts_max=5, backoff_s_min=1.0, backoff_s_max=6.0)


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (
            "x\norg.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] headrace expectation failed: has a "
            'customer (customer is not null) in {"id":1} SQLSTATE: P0001\n\tat x',
            "expectation",
            'has a customer (customer is not null) in {"id":1}',
        ),
        ("headrace rows of one key: {\"k\":1}", "code", "nothing tells which is the last"),
        ("[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost", "data loss", "Some data"),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server", "data loss", "server"),
        ("[DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data update", "schema", "data update"),
        ("[DELTA_FAILED_TO_MERGE_FIELDS] Failed to merge fields", "schema", "Failed to merge"),
        ("pyspark.errors.AnalysisException: [UNRESOLVED_COLUMN] A column", "code", "A column"),
        ("org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired", "transient", "Timeout"),
        ("KafkaError{code=_TRANSPORT,val=-195}", "transient", "_TRANSPORT"),
        ("[DELTA_CONCURRENT_APPEND] ConcurrentAppendException", "transient", "Concurrent"),
        ("something else altogether", "unknown", "something else"),
    ],
)  # fmt: skip
def test_a_failure_is_known_by_what_spark_says(text: str, kind: str, says: str) -> None:
    failure = classify(text)
    assert failure.kind == kind
    assert says in failure.message
    assert "SQLSTATE" not in failure.message


WORKER = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/spark/python/pyspark/worker.py", line 3340, in main
    process()
  File "{file}", line 7, in shorten
    return {call}
           ^^^^^^
  File "/usr/lib/python3.11/json/decoder.py", line 337, in decode
    obj, end = self.raw_decode(s, idx=_w(s, 0).end())
{said}
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_what_a_function_raises_in_a_worker_names_the_user_s_line() -> None:
    said = "KeyError: 'schema mismatch, connection refused'"
    failure = classify(WORKER.format(file="/home/me/shop/rules.py", call="x", said=said))
    assert failure == Failure(kind="code", message=f"/home/me/shop/rules.py:7: {said}", remedy="fix the function")


def test_a_task_that_could_not_write_to_a_topic_is_tried_again() -> None:
    file = "/venv/lib/python3.11/site-packages/headrace/streaming/topic_task.py"
    said = "cimpl.KafkaException: KafkaError{code=_TIMED_OUT,val=-185}"
    assert classify(WORKER.format(file=file, call="x", said=said)).kind == "transient"


def test_what_passes_is_tried_again_with_growing_waits_and_an_end() -> None:
    away = Failure(kind="transient", message="", remedy="")
    assert [wait_s(away, restarts, PATIENCE) for restarts in range(6)] == [1.0, 2.0, 4.0, 6.0, 6.0, None]


def test_what_nobody_knows_is_tried_three_times() -> None:
    odd = Failure(kind="unknown", message="", remedy="")
    assert [wait_s(odd, restarts, PATIENCE) for restarts in range(4)] == [1.0, 2.0, 4.0, None]


@pytest.mark.parametrize("kind", ["expectation", "data loss", "schema", "code"])
def test_what_does_not_mend_itself_stops_at_once(kind: str) -> None:
    assert wait_s(Failure(kind=kind, message="", remedy=""), 0, PATIENCE) is None  # type: ignore[arg-type]


def test_a_message_is_one_line_of_bounded_length() -> None:
    failure = classify("TimeoutException: " + "x" * 10_000 + "\n" + "y" * 10_000)
    assert len(failure.message) <= 400
    assert "\n" not in failure.message
