"""What tests, benchmarks, examples and docs import from headrace is there: a name that was changed is missed in suites
that run late, or not at all in `make test`."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests", "bench", "examples", "docs", "tools")


def _imported(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headrace":
            for each in node.names:
                yield node.module or "", each.name


def _is_there(module: str, name: str) -> bool:
    if hasattr(importlib.import_module(module), name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_name_that_is_imported_is_there(folder: str) -> None:
    pytest.importorskip("pyspark")
    names = {(str(path), *each) for path in (ROOT / folder).rglob("*.py") for each in _imported(path)}
    missing = [f"{path}: {module}.{name}" for path, module, name in sorted(names) if not _is_there(module, name)]
    assert not missing, "\n".join(missing)
