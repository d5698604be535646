"""A schema that changes between two runs: what is refused is refused before a batch, and the advice works."""

from __future__ import annotations

import re

import pytest
from pipeline_runs import Bench

from headrace.core.errors import OperatorError

CODE = """
    typed = hr.topic("typed-{topic}", schema="id int, amount double")

    @hr.table({options})
    def clean(typed):
        return typed{more}
    """


@pytest.mark.parametrize("evolve", ["", "evolve=True"])
def test_a_changed_type_is_refused_before_the_batch_and_both_advices_work(bench: Bench, evolve: str) -> None:
    topic = "evolving" if evolve else "fixed"
    first = bench.file(CODE.format(topic=topic, options=evolve, more=""))
    bench.send(f"typed-{topic}", [{"id": 1, "amount": 1.5}])
    bench.once(first)
    changed = '.withColumn("amount", F.col("amount").cast("string"))'
    second = bench.file(CODE.format(topic=topic, options=evolve, more=changed))
    bench.send(f"typed-{topic}", [{"id": 2, "amount": 2.5}])
    with pytest.raises(OperatorError, match="column 'amount' is double in the table, and now string") as refused:
        bench.once(second, accept_change=True)
    assert [row.id for row in bench.rows("clean")] == [1]
    said = str(refused.value)
    assert f"headrace pipeline replay {second}" in said
    cast = re.search(r"keep the type: (\.withColumn\(.*\))$", said)
    assert cast is not None
    bench.replay_once(second)
    rebuilt = bench.spark.read.format("delta").load(bench.version_path("clean", 2))
    assert (rebuilt.schema["amount"].dataType.simpleString(), rebuilt.count()) == ("string", 2)
    third = bench.file(CODE.format(topic=topic, options=evolve, more=changed + cast[1]))
    bench.once(third, accept_change=True)
    assert [tuple(row) for row in bench.rows("clean")] == [(1, 1.5), (2, 2.5)]


def test_an_avro_schema_in_a_file_is_kept_with_the_version(bench: Bench) -> None:
    schema = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'
    file = bench.directory / "orders.avsc"
    file.write_text(schema)
    path = bench.file("""
        filed = hr.topic("avro-filed", schema="orders.avsc", format="avro")

        @hr.table
        def clean(filed):
            return filed
        """)
    bench.send("avro-filed", [b"\x02"])
    bench.once(path)
    file.write_text(schema.replace("id", "number"))
    with pytest.raises(OperatorError, match=r"orders\.avsc changed"):
        bench.once(path)
    bench.send("avro-filed", [b"\x04"])
    bench.once("shop")  # by its name: the code and the schema that the version keeps
    assert [row.id for row in bench.rows("clean")] == [1, 2]
