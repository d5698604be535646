"""One line of a pipeline's file at a time: what it declares, and what it refuses with file and line."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headrace as hr
from headrace.streaming.declarations import PipelineError, TableOutput, TopicOutput, collecting
from headrace.streaming.declare_nodes import DECLARED


def test_a_decorated_function_stays_the_plain_function_that_it_was() -> None:
    @hr.table(key="id")
    def doubled(orders: int) -> int:
        return orders * 2

    assert doubled(4) == 8
    assert getattr(doubled, DECLARED).output == TableOutput(key=("id",))


def test_argument_names_are_the_edges_and_ordinary_defaults_are_not() -> None:
    with collecting() as declared:

        @hr.view
        def joined(orders, payments, days=3):  # type: ignore[no-untyped-def]
            return orders

    assert declared.nodes[0].inputs == ("orders", "payments")


def test_a_source_as_a_default_is_an_edge() -> None:
    customers = hr.static("customers")
    with collecting() as declared:

        @hr.table
        def joined(orders, who=customers):  # type: ignore[no-untyped-def]
            return orders

    assert declared.nodes[0].inputs == ("orders", "who")
    assert declared.nodes[0].defaults["who"] is customers


def test_expectations_take_a_name_or_go_by_their_predicate() -> None:
    with collecting() as declared:

        @hr.table(expect={"amount is positive": hr.quarantine("amount > 0"), "has id": hr.fail("id is not null")})
        def named(orders):  # type: ignore[no-untyped-def]
            return orders

        @hr.table(expect=[hr.warn("a > 0"), hr.drop("b > 0")])
        def unnamed(orders):  # type: ignore[no-untyped-def]
            return orders

    assert [(e.name, e.action) for e in declared.nodes[0].expectations] == [
        ("amount is positive", "quarantine"),
        ("has id", "fail"),
    ]
    assert [(e.name, e.predicate, e.action) for e in declared.nodes[1].expectations] == [
        ("a > 0", "a > 0", "warn"),
        ("b > 0", "b > 0", "drop"),
    ]


def test_a_for_each_batch_function_may_take_the_batch() -> None:
    with collecting() as declared:

        @hr.for_each_batch
        def write(orders, batch):  # type: ignore[no-untyped-def]
            return None

    assert declared.nodes[0].inputs == ("orders",)
    assert declared.nodes[0].takes_batch


def test_to_topic_keeps_what_it_was_told() -> None:
    with collecting() as declared:

        @hr.to_topic("big", key=["a", "b"], value="v", headers="h", order_by="at", tasks=7)
        def big(orders):  # type: ignore[no-untyped-def]
            return orders

    assert declared.nodes[0].output == TopicOutput(
        topic="big", key=("a", "b"), value="v", headers="h", order_by=("at",), tasks=7
    )


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: hr.topic("t", format="xml"), "format='xml': must be one of json"),  # type: ignore[arg-type]
        (lambda: hr.topic("t", format="csv"), "needs a schema"),
        (lambda: hr.topic("t", schema="a int", format="raw"), "takes no schema"),
        (lambda: hr.topic("t", schema=5), "give DDL"),
        (lambda: hr.topic("t", tombstones="drop"), "must be one of quarantine, keep"),  # type: ignore[arg-type]
        (lambda: hr.topic("t", schema="a int", format="csv", extra="quarantine"), "is for format='json'"),
        (lambda: hr.table(mode="upsert"), "must be one of append, update, complete"),  # type: ignore[call-overload]
        (lambda: hr.table(mode="complete", key="a"), "a key has no use"),
        (lambda: hr.table(delete="a"), "add key="),
        (lambda: hr.table(order_by="a"), "add key="),
        (lambda: hr.table(key="a", replace_where="day = 1"), "is for appended rows"),
        (lambda: hr.to_topic("t", tasks=0), "tasks=0 is outside [1, 1000]"),
        (lambda: hr.to_topic("t", latency="fast"), "must be one of exactly_once, realtime"),  # type: ignore[arg-type]
        (lambda: hr.to_topic("t", latency="realtime", expect=[hr.warn("a")]), "takes no expectations"),
        (lambda: hr.quarantine(""), "give a SQL predicate"),
        (lambda: hr.table(expect={"x": "amount > 0"})(lambda a: a), "use hr.warn"),  # type: ignore[dict-item]
        (lambda: hr.table(options={"checkpointLocation": "/x"})(lambda a: a), "belongs to the version"),
        (lambda: hr.table(lambda *rows: rows), "has no name to look up"),
        (lambda: hr.table(lambda: None), "reads nothing"),
    ],
)
def test_what_one_line_gets_wrong_is_said_with_its_line(declare, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PipelineError, match=r"test_declare\.py:\d+: ") as caught:
        declare()
    assert says in str(caught.value)


def test_importing_headrace_and_declaring_imports_no_spark() -> None:
    code = (
        "import sys, headrace as hr\n"
        "hr.topic('t', schema='a int')\n"
        "hr.table(lambda t: t)\n"
        "assert not [m for m in sys.modules if m.startswith(('pyspark', 'py4j', 'confluent_kafka', 'duckdb'))]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
