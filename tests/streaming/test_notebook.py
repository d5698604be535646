"""The notebook in examples/ is executed, cell by cell as Jupyter would, in the shared session."""

from __future__ import annotations

import json
import linecache
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).resolve().parent.parent.parent / "examples" / "notebook" / "orders.ipynb"


def execute(notebook: Path, names: dict[str, Any]) -> None:
    """Every code cell in order, in one namespace; the source of a cell can be asked for, as in Jupyter."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    for number, cell in enumerate(content["cells"]):
        if cell["cell_type"] != "code":
            continue
        text, place = "".join(cell["source"]), f"<cell {number} of {notebook.name}>"
        linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
        exec(compile(text, place, "exec"), names)


def test_the_notebook_runs_from_its_first_cell_to_its_last(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("executed_notebook")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    execute(NOTEBOOK, module.__dict__)
    names = module.__dict__
    assert names["now"] == {"ann": 160.0, "bob": 10.0}
    assert names["then"] == {"ann": 60.0, "bob": 10.0}
    assert list(names["aside"]["offset"]) == [2]
    assert "clean_orders reads topic orders and has struct<order_id:int,customer:string,amount:double>" in (
        capsys.readouterr().out
    )


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
