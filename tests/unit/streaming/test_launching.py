"""Which version a file runs as: its own code and that of the modules beside it decide. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_files import write

from headrace.core.errors import OperatorError
from headrace.streaming.launching import Launch, launch_live, launch_next
from headrace.tables.version_code import CHANGING

CODE = """
import amounts
orders = hr.topic("orders", schema="a int")

@hr.table
def clean(orders):
    return amounts.LIMIT
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "amounts.py").write_text("LIMIT = 1\n")
    return write(tmp_path, CODE)


def value(launch: Launch) -> object:
    return launch.loaded.nodes[0].function(None)


def test_a_module_beside_the_file_counts_as_the_file_does(tmp_path: Path, file: str) -> None:
    tables = str(tmp_path / "tables")
    assert launch_live(file, tables).version == 1
    (tmp_path / "amounts.py").write_text("# the most\nLIMIT = (1)\n")
    assert launch_live(file, tables).version == 1
    (tmp_path / "amounts.py").write_text("LIMIT = 2\n")
    with pytest.raises(
        OperatorError,
        match=r"its code is not that of version 1, which is live \(amounts\.py changed\); build the next version with",
    ):
        launch_live(file, tables)
    assert launch_next(file, tables, None)[0].version == 2
    assert launch_next(file, tables, None)[0].version == 2
    (tmp_path / "amounts.py").write_text("LIMIT = 3\n")
    assert launch_next(file, tables, None)[0].version == 3


def test_a_version_by_its_pipeline_s_name_runs_what_it_keeps(tmp_path: Path, file: str) -> None:
    tables = str(tmp_path / "tables")
    launch_live(file, tables)
    (tmp_path / "amounts.py").write_text("LIMIT = 2\n")
    launch_next(file, tables, None)[0].catalog.cut_over(2)
    (tmp_path / "amounts.py").unlink()
    launch = launch_live("shop", tables)
    assert (launch.version, value(launch)) == (2, 2)
    launch.catalog.roll_back()
    launch = launch_live("shop", tables)
    assert (launch.version, value(launch)) == (1, 1)


def test_accepted_code_replaces_the_old_whole(tmp_path: Path, file: str) -> None:
    tables = str(tmp_path / "tables")
    launch_live(file, tables)
    (tmp_path / "amounts.py").unlink()
    (tmp_path / "limits.py").write_text("LIMIT = 7\n")
    write(tmp_path, CODE.replace("amounts", "limits"))
    launch = launch_live(file, tables, accept_change=True)
    assert sorted(launch.catalog.code(1).modules) == ["limits.py"]
    assert value(launch_live("shop", tables)) == 7


def test_code_that_was_left_half_changed_is_not_run(tmp_path: Path, file: str) -> None:
    tables = str(tmp_path / "tables")
    catalog = launch_live(file, tables).catalog
    Path(catalog.layout.version_dir(1), CHANGING).touch()
    with pytest.raises(OperatorError, match="shop: a process died while it changed the code of version 1; run it from"):
        launch_live("shop", tables)
    with pytest.raises(OperatorError, match=r"shop\.py changed"):
        launch_live(file, tables)
    launch_live(file, tables, accept_change=True)
    assert value(launch_live("shop", tables)) == 1
