"""docs/internals/modules.md: what each module is for, in its own first words, in the order of the layers."""

import ast
import tomllib
from pathlib import Path

from page_parts import code, table, whole

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "headrace"

INTRODUCTION = (
    "The first words of each module. A package is a layer: it imports only packages that stand below it on this page,"
    " and none beside it."
)


def page() -> str:
    return whole("Modules", INTRODUCTION, *(part for package in _packages() for part in _section(package)))


def _packages() -> list[str]:
    """From the top layer down, as import-linter knows them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [name.strip().removeprefix("headrace.") for layer in layers for name in layer.split("|")]


def _section(package: str) -> tuple[str, str]:
    rows = []
    for file in sorted((SOURCE / package).rglob("*.py")):
        says = _first_words(file)
        if says:
            rows.append((code(file.relative_to(SOURCE / package).with_suffix("").as_posix()), says))
    return f"## {package}", table(("module", "what it is for"), rows)


def _first_words(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())
