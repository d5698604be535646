"""A pipeline's file is the user's code: what it declares, and how it fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_files import write

from headrace.core.errors import OperatorError
from headrace.streaming.code_change import same_code
from headrace.streaming.loading import load

TABLE = """
orders = hr.topic("orders", schema="a int")

@hr.table
def clean(orders):
    return orders
"""


def test_a_pipeline_has_the_name_of_its_file(tmp_path: Path) -> None:
    assert load(write(tmp_path, TABLE, "eshop.py")).pipeline == "eshop"


def test_a_pipeline_can_name_itself(tmp_path: Path) -> None:
    assert load(write(tmp_path, 'hr.pipeline("shop")\n' + TABLE, "other.py")).pipeline == "shop"


def test_a_source_goes_by_the_variable_that_holds_it(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, 'mine = hr.topic("the-orders", schema="a int")'))
    assert list(loaded.sources) == ["mine"]


def test_a_source_that_no_variable_holds_goes_by_its_own_name(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, 'hr.topic("big.orders-1", schema="a int")'))
    assert list(loaded.sources) == ["big_orders_1"]


def test_two_functions_of_one_name_are_both_seen(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, TABLE + "\n@hr.table\ndef clean(orders):\n    return orders\n"))
    assert [node.name for node in loaded.nodes] == ["clean", "clean"]


def test_functions_of_a_module_beside_the_file_are_nodes_each_time_it_is_loaded(tmp_path: Path) -> None:
    write(tmp_path, "@hr.view\ndef shared_view(orders):\n    return orders\n", "beside_shared.py")
    path = write(tmp_path, "from beside_shared import shared_view\n" + TABLE)
    first, second = load(path), load(path)
    for loaded in (first, second):
        assert [node.name for node in loaded.nodes] == ["shared_view", "clean"]
        assert list(loaded.own.sources) == ["beside_shared.py"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("x = = 1", r"shop\.py:2: invalid syntax"),
        ("\nx = unknown_name", r"shop\.py:3: NameError: name 'unknown_name' is not defined"),
        ("import no_such_module_at_all", r"shop\.py:2: ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", r"shop\.py:2: SystemExit: 3"),
        ('hr.topic("t", format="xml")', r"shop\.py:2: format='xml'"),
        ("import beside_wrong", r"beside_wrong\.py:3: ZeroDivisionError"),
        ("import beside_unfinished", r"beside_unfinished\.py:1: "),
    ],
)
def test_what_the_file_raises_is_one_line_with_its_place(tmp_path: Path, code: str, says: str) -> None:
    (tmp_path / "beside_wrong.py").write_text("\n\n1 / 0\n")
    (tmp_path / "beside_unfinished.py").write_text("def f(:\n")
    with pytest.raises(OperatorError, match=says):
        load(write(tmp_path, code))


def test_a_line_that_needs_spark_too_early_is_named_with_what_to_write(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    code = 'from pyspark.sql import functions as F\n@F.udf("int")\ndef same(x):\n    return x'
    with pytest.raises(OperatorError, match=r"shop\.py:[34]: this line needs Spark.*IntegerType\(\), not"):
        load(write(tmp_path, code))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"none\.py: no such file or directory; give the path"):
        load(str(tmp_path / "none.py"))


def test_a_file_that_is_no_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe")
    with pytest.raises(OperatorError, match="not UTF-8 at byte 0"):
        load(str(tmp_path / "bytes.py"))


def test_comments_and_layout_do_not_make_other_code() -> None:
    assert same_code("a = 1  # one\n", "# none\na  =  1\n")
    assert not same_code("a = 1\n", "a = 2\n")
    assert not same_code("a = = 1", "a = 1")
