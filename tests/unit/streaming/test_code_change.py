"""What a change of code touches, and when it asks for a replay. No Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pipeline_files import write

sys.path.insert(1, str(Path(__file__).parent.parent / "tables"))

from delta_tables import write as write_table

from headrace.core.errors import OperatorError
from headrace.streaming.code_change import same_code, touched_names
from headrace.streaming.launching import launch_live
from headrace.tables.version_code import VersionCode

CODE = '''
"""The shop."""
import headrace as hr
from math import pi

LIMIT = 10
orders = hr.topic("orders", schema="a int")

def large(frame):
    return frame.where(f"a > {LIMIT}")

@hr.table
def clean(orders):
    """Orders."""
    return orders

@hr.view
def seen(clean):
    return clean

@hr.table
def big(seen):
    return large(seen)

@hr.to_topic("out")
def sent(orders):
    return orders

@hr.table(name="best")
def best_of(big, other=hr.static("clean")):
    return big

hr.pipeline("shop")
'''


def touched(old: str, new: str, code: str = CODE) -> frozenset[str] | None:
    assert old in code
    return touched_names(VersionCode.of(code), VersionCode.of(code.replace(old, new)))


def test_comments_layout_and_docstrings_are_no_change() -> None:
    assert same_code('"""A"""\ndef f():\n    "b"\n    return 1\n', "# c\ndef f(): return (1)\n")
    assert not same_code("x = 1", "x = 2")
    assert not same_code("def f(): 'a'", "def f(): return 'a'")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("orders\n\n@hr.view", "orders.limit(1)\n\n@hr.view", {"clean", "seen", "big", "best", "best_of"}),
        ("LIMIT = 10", "LIMIT = 11", {"LIMIT", "large", "big", "best", "best_of"}),
        ("def sent(orders):\n    return orders", "def sent(orders):\n    return orders.limit(1)", {"sent"}),
        ("return big\n", "return big.limit(1)\n", {"best", "best_of"}),
        ('@hr.to_topic("out")', '@hr.table\ndef more(orders):\n    return orders\n\n@hr.to_topic("out")', {"more"}),
        ('schema="a int"', 'schema="a long"', {"orders", "clean", "seen", "big", "best", "best_of", "sent"}),
    ],
)  # fmt: skip
def test_a_change_touches_what_mentions_it(old: str, new: str, expected: set[str]) -> None:
    assert touched(old, new) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('hr.pipeline("shop")', 'hr.pipeline("shops")'),
        ("LIMIT = 10\norders", "for LIMIT in (3,): pass\norders"),
        ("from math import pi", "from math import *"),
        ("LIMIT = 10\n", "LIMIT = 10\nLIMIT = ("),
    ],
)
def test_what_cannot_be_followed_touches_everything(old: str, new: str) -> None:
    assert touched(old, new) is None


def test_another_order_of_the_same_statements_touches_everything() -> None:
    assert touched("b", "b", "a = 1\nb = 1\n") == frozenset()
    assert touched_names(VersionCode.of("a = 1\na = 2\n"), VersionCode.of("a = 2\na = 1\n")) is None


def test_a_changed_module_touches_everything() -> None:
    old, new = ({"rules.py": text} for text in (b"A = 1", b"A = 2"))
    assert touched_names(VersionCode(main=b"x = 1", modules=old), VersionCode(main=b"x = 1", modules=new)) is None


PIPELINE = """
orders = hr.topic("orders", schema="a int")

@hr.table
def clean(orders):
    return 1

@hr.table
def totals(clean):
    return {value}
"""


def test_a_node_that_has_written_nothing_begins_again_without_a_replay(tmp_path: Path) -> None:
    tables = str(tmp_path / "tables")
    layout = launch_live(write(tmp_path, PIPELINE.format(value=1)), tables).catalog.layout
    write_table(layout.table_dir(1, "clean"), "select 1 a")
    write_table(layout.table_dir(1, "totals"), "select 1 a limit 0")
    checkpoint = Path(layout.checkpoint_dir(1, "totals"), "offsets")
    checkpoint.mkdir(parents=True)
    (checkpoint / "0").touch()
    launch = launch_live(write(tmp_path, PIPELINE.format(value=2)), tables)
    assert launch.news == "changed, and has written nothing: totals; version 1 goes on with the new code"
    assert (launch.version, launch.loaded.nodes[1].function(None)) == (1, 2)
    assert not checkpoint.exists()
    assert not Path(layout.table_dir(1, "totals")).exists()
    assert Path(layout.table_dir(1, "clean")).exists()
    # The version keeps the new code: nothing is changed any more.
    assert launch_live(write(tmp_path, PIPELINE.format(value=2)), tables).news == ""
    write_table(layout.table_dir(1, "totals"), "select 1 a")
    with pytest.raises(OperatorError, match="its code is not that of version 1"):
        launch_live(write(tmp_path, PIPELINE.format(value=3)), tables)


def test_a_topic_that_a_node_may_have_written_to_asks_for_a_replay(tmp_path: Path) -> None:
    tables = str(tmp_path / "tables")
    code = PIPELINE.replace("@hr.table\ndef totals", '@hr.to_topic("totals")\ndef totals')
    layout = launch_live(write(tmp_path, code.format(value=1)), tables).catalog.layout
    assert launch_live(write(tmp_path, code.format(value=2)), tables).version == 1
    checkpoint = Path(layout.checkpoint_dir(1, "totals"), "offsets")
    checkpoint.mkdir(parents=True)
    (checkpoint / "0").touch()
    with pytest.raises(OperatorError, match="its code is not that of version 1"):
        launch_live(write(tmp_path, code.format(value=3)), tables)
