"""Pipelines written into files for the tests that load them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from headrace.streaming.graph import Graph, make_graph
from headrace.streaming.loading import load


def write(directory: Path, code: str, name: str = "shop.py") -> str:
    path = directory / name
    path.write_text("import headrace as hr\n" + dedent(code))
    return str(path)


def graph_of(directory: Path, code: str, name: str = "shop.py") -> Graph:
    return make_graph(load(write(directory, code, name)))
