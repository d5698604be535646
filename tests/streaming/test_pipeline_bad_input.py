"""Whatever is wrong with the input is visible: in the quarantine with place and bytes, in the counts, or in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline_runs import Bench
from waits import WAIT_S_MAX, eventually

import headrace
from headrace.core.errors import OperatorError
from headrace.streaming.progress import read_progress


def test_bad_records_go_to_quarantine_with_their_place_and_good_ones_to_the_table(bench: Bench) -> None:
    path = bench.file("""
        mixed = hr.topic("mixed", schema="id int, amount double")

        @hr.table(expect={"positive": hr.quarantine("amount > 0"), "small": hr.warn("amount < 100"),
                          "known": hr.drop("id <> 13")})
        def clean(mixed):
            return mixed
        """)
    good: list[Any] = [{"id": 1, "amount": 5.0}, {"id": 2, "amount": 500.0}]
    bad: list[Any] = [b"{bad", {"id": "x", "amount": 1.0}, {"id": 3, "amount": None}, {"id": 4, "amount": -1.0}]
    bench.send("mixed", [*good, *bad, {"id": 13, "amount": 1.0}, None], key=lambda value: "one-partition")
    progress = bench.once(path)
    assert [tuple(row) for row in bench.rows("clean")] == [(1, 5.0), (2, 500.0)]
    kept_out = {row.offset: row for row in bench.quarantine("clean")}
    assert {offset: row.reason for offset, row in kept_out.items()} == {
        2: "malformed JSON, or not an object",
        3: "wrong type: id is 'x', not int",
        4: "positive (amount > 0): amount is null",
        5: "positive (amount > 0): amount is -1.0",
        7: "no value (a tombstone)",
    }
    assert (kept_out[2].value, kept_out[2].row) == (b"{bad", "{bad")
    assert (kept_out[2].topic, kept_out[2].key) == ("mixed", b"one-partition")
    assert kept_out[2].timestamp is not None
    assert json.loads(kept_out[5].row) == {"id": 4, "amount": -1.0}
    node = progress.nodes["clean"]
    assert (node.rows_in, node.unparsed, node.quarantined) == (8, 3, 5)
    # A predicate that is null is not true: the row without an amount is not small either.
    assert {name: each["failed"] for name, each in node.expectations.items()} == {
        "positive": 2, "small": 2, "known": 1, "can be parsed": 3,
    }  # fmt: skip
    # Once more, with nothing new: nothing comes again.
    bench.once(path)
    assert len(bench.quarantine("clean")) == 5


def test_a_row_that_must_not_be_stops_its_node_and_no_other(bench: Bench) -> None:
    path = bench.file("""
        strict = hr.topic("strict", schema="id int, customer string")

        @hr.table(expect={"has a customer": hr.fail("customer is not null")})
        def guarded(strict):
            return strict

        @hr.table
        def free(strict):
            return strict
        """)
    bench.send("strict", [{"id": 1, "customer": "a"}], key=lambda value: "k")
    bench.once(path)
    bench.send("strict", [{"id": 2, "customer": "b"}, {"id": 3}], key=lambda value: "k")
    progress = bench.try_once(path)
    assert progress.status == "failed"
    assert progress.nodes["free"].status == "finished"
    message = progress.nodes["guarded"].message
    assert "batch 1 (strict offsets" in message
    assert 'expectation failed: has a customer (customer is not null) in {"id":3' in message
    assert "nothing of the batch was written" in message
    assert [row.id for row in bench.rows("guarded")] == [1]
    assert [row.id for row in bench.rows("free")] == [1, 2, 3]
    status = read_progress(bench.version_path("run.json"))
    assert status is not None
    assert status.nodes["guarded"].message == message


def test_a_function_that_fails_on_a_row_says_which_batch(bench: Bench) -> None:
    path = bench.file("""
        rows = hr.topic("failing", schema="id int")

        @hr.table
        def broken(rows):
            return rows.withColumn("half", F.expr("10 / id"))
        """)
    bench.send("failing", [{"id": 0}])
    node = bench.try_once(path).nodes["broken"]
    assert node.status == "failed"
    assert "batch 0 (failing offsets" in node.message
    assert "by zero" in node.message.lower()


def test_two_rows_of_one_key_without_an_order_are_not_left_to_chance(bench: Bench) -> None:
    path = bench.file("""
        twice = hr.topic("twice", schema="k int, v int")

        @hr.table(key="k")
        def keyed(twice):
            return twice.select("k", "v")
        """)
    bench.send("twice", [{"k": 1, "v": 1}, {"k": 1, "v": 2}])
    node = bench.try_once(path).nodes["keyed"]
    assert node.status == "failed"
    assert "nothing tells which is the last" in node.message
    assert "add order_by=" in node.message


def test_a_schema_is_inferred_once_and_then_kept(bench: Bench) -> None:
    path = bench.file("""
        guessed = hr.topic("guessed")

        @hr.table
        def stored(guessed):
            return guessed
        """)
    bench.send("guessed", [{"id": 1, "name": "x"}])
    bench.once(path)
    assert Path(bench.version_path("_schemas/guessed.ddl")).read_text().strip() == "`id` bigint, `name` string"
    bench.send("guessed", [{"id": "other"}, {"id": 2, "new": True}])
    bench.once(path)
    assert [tuple(row) for row in bench.rows("stored")] == [(1, "x"), (2, None)]
    assert [row.reason for row in bench.quarantine("stored")] == ["wrong type: id is 'other', not bigint"]


def test_a_changed_schema_is_refused_unless_the_table_may_evolve(bench: Bench) -> None:
    code = """
        growing = hr.topic("growing", schema="id int{more}")

        @hr.table(evolve={evolve})
        def stored(growing):
            return growing
        """
    bench.send("growing", [{"id": 1}])
    bench.once(bench.file(code.format(more="", evolve=False)))
    changed = bench.file(code.format(more=", name string", evolve=False))
    with pytest.raises(OperatorError, match="its code is not that of version 1"):
        bench.try_once(changed)
    with pytest.raises(OperatorError, match=r"stored: the table has another schema \(name is new\); build the next"):
        bench.try_once(changed, accept_change=True)
    bench.send("growing", [{"id": 2, "name": "x"}])
    bench.once(bench.file(code.format(more=", name string", evolve=True)), accept_change=True)
    assert [tuple(row) for row in bench.rows("stored")] == [(1, None), (2, "x")]


def test_a_topic_that_is_not_there_is_said_before_anything_starts(bench: Bench) -> None:
    path = bench.file("""
        nowhere = hr.topic("nowhere", schema="id int")

        @hr.table
        def stored(nowhere):
            return nowhere
        """)
    with pytest.raises(OperatorError, match=r"shop\.py:\d+: topic 'nowhere' is not at 127"):
        bench.try_once(path)


def test_offsets_that_were_deleted_are_said_and_never_skipped(bench: Bench) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    path = bench.file("""
        aging = hr.topic("aging", schema="id int")

        @hr.table
        def stored(aging):
            return aging
        """)
    bench.send("aging", [{"id": number} for number in range(3)], key=lambda value: "k")
    bench.once(path)
    bench.send("aging", [{"id": number} for number in range(3, 9)], key=lambda value: "k")
    partition = bench.records("aging")[0].partition()
    admin = AdminClient({"bootstrap.servers": bench.broker.bootstrap_servers, "log_level": 0})
    for future in admin.delete_records([TopicPartition("aging", partition, 6)]).values():
        future.result(WAIT_S_MAX)
    node = bench.try_once(path).nodes["stored"]
    assert node.status == "failed"
    assert "nothing is skipped silently" in node.message
    assert "replay" in node.message
    assert [row.id for row in bench.rows("stored")] == [0, 1, 2]


def test_a_topic_that_vanishes_is_said(bench: Bench) -> None:
    from confluent_kafka.admin import AdminClient

    with headrace.Broker(num_partitions=1) as broker:
        bench.broker = broker
        path = bench.file("""
            fleeting = hr.topic("fleeting", schema="id int")

            @hr.table
            def stored(fleeting):
                return fleeting
            """)
        bench.send("fleeting", [{"id": 1}])
        with bench.running(path) as runner:
            node = runner.progress.nodes["stored"]
            eventually(lambda: node.batches, "a first batch")
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            admin.delete_topics(["fleeting"])["fleeting"].result(WAIT_S_MAX)
            eventually(lambda: node.status == "failed", f"the node stops: {node}")
        assert "fleeting" in node.message
        assert [row.id for row in bench.rows("stored")] == [1]
