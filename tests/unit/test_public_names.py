"""What `import headrace` offers: completion, a docstring with an example each, examples that work."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys

import pytest

import headrace

FUNCTIONS = sorted(name for name in headrace.__all__ if inspect.isfunction(getattr(headrace, name)))
CLASSES = sorted(name for name in headrace.__all__ if inspect.isclass(getattr(headrace, name)))
MODULES = ("streaming.declare", "streaming.declare_nodes", "streaming.declare_sources", "streaming.rules",
           "broker.embedded")  # fmt: skip


def test_completion_offers_every_name_before_it_is_imported() -> None:
    code = "import headrace, sys; print(*dir(headrace)); print('pyspark' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, heavy = ended.stdout.splitlines()
    assert {name for name in names.split() if not name.startswith("__")} == set(headrace.__all__) - {"__version__"}
    assert heavy == "False"


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_every_name_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(headrace, name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_an_example_and_types(name: str) -> None:
    function = getattr(headrace, name)
    doc = inspect.getdoc(function) or ""
    assert ">>> " in doc or "    " in doc, f"{name} has no example"
    signature = inspect.signature(function)
    assert signature.return_annotation is not signature.empty
    assert all(each.annotation is not each.empty for each in signature.parameters.values())


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_that_need_no_spark_work(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"headrace.{module}"))
    assert found.attempted
    assert not found.failed
