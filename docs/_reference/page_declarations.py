"""What a pipeline's file may say: every declaration with its arguments, from the functions themselves."""

import inspect
from collections.abc import Callable
from textwrap import dedent
from typing import Any

from page_parts import block, code, plain, table, whole

import headrace
from headrace.streaming import declare

MODULES = ("rules", "declare", "declare_sources", "declare_nodes")
INTRO = "What a pipeline's file calls, as `import headrace as hr`. How they go together: [Pipelines](../pipelines.md)."


def page() -> str:
    names = [name for name in headrace.__all__ if getattr(declare, name, None) is getattr(headrace, name)]
    functions = sorted((getattr(declare, name) for name in names), key=_order)
    index = table(
        ("declaration", "what it does"),
        [(f"[`hr.{each.__name__}`](#hr{each.__name__})", plain(_first(each))) for each in functions],
    )
    return whole("Pipeline declarations", INTRO, index, *(section(each) for each in functions))


def _order(function: "Callable[..., object]") -> tuple[int, int]:
    """As they stand in the code."""
    return MODULES.index(function.__module__.rpartition(".")[2]), function.__code__.co_firstlineno


def _first(function: "Callable[..., object]") -> str:
    return inspect.getdoc(function).partition("\n\n")[0]


def section(function: "Callable[..., object]") -> str:
    parameters = [each for each in inspect.signature(function).parameters.values() if each.kind != each.POSITIONAL_ONLY]
    needed = [each.name for each in parameters if each.default is each.empty]
    given = ", ".join([*needed, *(["…"] if len(parameters) > len(needed) else [])])
    parts = [f"## hr.{function.__name__}", block(f"hr.{function.__name__}({given})"), *_prose(function)]
    rows = [(code(each.name), _type(each), _default(each)) for each in parameters if each.default is not each.empty]
    if rows:
        parts.append(table(("argument", "type", "default"), rows))
    return "\n\n".join(parts)


def _prose(function: "Callable[..., object]") -> list[str]:
    # The docstrings are written with backticks, which is Markdown already; their examples are doctests.
    parts = inspect.getdoc(function).split("\n\n")
    return [_part(each) for each in parts]


def _part(text: str) -> str:
    if text.startswith(">>> "):
        return _example(text)
    return block(dedent(text)) if text.startswith("    ") else " ".join(text.split())


def _example(text: str) -> str:
    """What is typed: without the prompts, without what is answered, and without the import that every file has."""
    lines = [line[4:] for line in text.splitlines() if line.startswith((">>> ", "... "))]
    return block("\n".join(line for line in lines if line != "import headrace as hr"))


def _type(parameter: inspect.Parameter) -> str:
    kind = parameter.annotation
    if kind is parameter.empty or kind is Any:
        return "anything"
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    for long, short in (("collections.abc.", ""), ("typing.", ""), ("headrace.streaming.rules.", "")):
        text = text.replace(long, short)
    return code(text)


def _default(parameter: inspect.Parameter) -> str:
    return code(repr(parameter.default)) if parameter.default not in (None, ()) else ""
