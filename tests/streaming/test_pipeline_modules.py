"""The modules beside a pipeline's file are part of its code: kept with the version, compared, run again, and what
Spark's workers import."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from pipeline_runs import Bench

from headrace.core.errors import OperatorError
from headrace.tables.catalog import PipelineCatalog

CODE = """
from pyspark.sql.types import IntegerType
import rules
from rules import doubled
from prices.tax import with_tax

counted = hr.topic("{topic}", schema="id int")

@F.udf(IntegerType())
def plus(number):
    return rules.plus(number)

@F.udf(IntegerType())
def late(number):
    import late_rules
    return late_rules.kind(number).value

@hr.table
def stored(counted):
    made = [doubled("id").alias("two"), plus("id").alias("more"), late("id").alias("late")]
    return with_tax(counted.select("id", *made))
"""
RULES = """
import threading
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

lock = threading.Lock()  # cannot be pickled: the workers have to import this module

@F.udf(IntegerType())
def doubled(number):
    return times(number, 2)

def times(number, by):
    with lock:
        return number * by

def plus(number):
    return number + {plus}
"""
LATE = """
from enum import Enum

class Kind(Enum):
    SMALL = {small}
    LARGE = 9

def kind(number):
    return Kind.SMALL if number < 2 else Kind.LARGE
"""
TAX = """
from pyspark.sql import functions as F
from .rates import RATE

def with_tax(frame):
    return frame.withColumn("tax", F.lit(RATE))
"""


def write(directory: Path, *, plus: int = 1, small: int = 5, rate: int = 3) -> None:
    (directory / "prices").mkdir(exist_ok=True)
    (directory / "prices" / "__init__.py").write_text("")
    (directory / "prices" / "tax.py").write_text(TAX)
    (directory / "prices" / "rates.py").write_text(f"RATE = {rate}\n")
    (directory / "rules.py").write_text(RULES.format(plus=plus))
    (directory / "late_rules.py").write_text(LATE.format(small=small))


def test_a_version_runs_the_modules_that_it_began_with(bench: Bench, tmp_path: Path) -> None:
    def stored(version: int) -> list[tuple[int, ...]]:
        path = bench.version_path("stored", version)
        return sorted(tuple(row) for row in bench.spark.read.format("delta").load(path).collect())

    bench.send("modules", [{"id": 1}, {"id": 2}])
    write(tmp_path)
    file = bench.file(CODE.format(topic="modules"))
    bench.once(file)
    first = [(1, 2, 2, 5, 3), (2, 4, 3, 9, 3)]
    assert stored(1) == first
    catalog = PipelineCatalog.open(bench.tables, "shop")
    kept = ["late_rules.py", "prices/__init__.py", "prices/rates.py", "prices/tax.py", "rules.py"]
    assert sorted(catalog.code(1).modules) == kept
    write(tmp_path, plus=10, small=7, rate=4)
    second = [(1, 2, 11, 7, 4), (2, 4, 12, 9, 4)]
    assert bench.replay_once(file).version == 2
    assert stored(2) == second
    catalog.cut_over(2)
    write(tmp_path, plus=100, small=70, rate=40)  # work goes on beside it
    bench.send("modules", [{"id": 0}])
    catalog.roll_back()
    bench.once("shop")
    assert stored(1) == [(0, 0, 1, 5, 3), *first]


def test_what_a_module_raises_names_its_own_file_and_line(bench: Bench, tmp_path: Path) -> None:
    bench.send("module-errors", [{"id": 1}])
    (tmp_path / "broken.py").write_text(
        dedent("""
        def late(number):
            return number / 0

        def early(frame):
            return frame.select("nothing")
        """)
    )
    code = """
        from pyspark.sql.types import DoubleType
        import broken
        read = hr.topic("module-errors", schema="id int")

        @F.udf(DoubleType())
        def divided(number):
            return {udf}

        @hr.table
        def stored(read):
            return {frame}.select(divided("id").alias("id"))
        """
    with pytest.raises(OperatorError, match=rf"^{tmp_path}/broken\.py:6: stored: .*nothing"):
        bench.try_once(bench.file(code.format(udf="1.0", frame="broken.early(read)")))
    (tmp_path / "tables").rename(tmp_path / "of-early")
    for udf, place in (("broken.late(number)", r"broken\.py:3"), ("number / 0", r"shop\.py:10")):
        progress = bench.try_once(bench.file(code.format(udf=udf, frame="read")), accept_change=True)
        assert progress.status == "failed"
        assert f"{tmp_path}/{place}".replace("\\", "") in progress.nodes["stored"].message
        assert "ZeroDivisionError: division by zero" in progress.nodes["stored"].message
