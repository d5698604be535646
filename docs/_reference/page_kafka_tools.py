"""Every tool that has a name of Kafka's, from the scripts in pyproject.toml and the table of options of each."""

import importlib
import tomllib
from pathlib import Path
from types import ModuleType

from page_parts import anchor, block, code, plain, table, whole

from headrace.cli.kafka.options import Option
from headrace.cli.kafka.tool import KAFKA_VERSION

PYPROJECT = Path(__file__).resolve().parent.parent.parent / "pyproject.toml"


def page() -> str:
    scripts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["scripts"]
    tools = {
        name: importlib.import_module(where.partition(":")[0])
        for name, where in sorted(scripts.items())
        if name.startswith(("kafka-", "zookeeper-"))
    }
    intro = (
        f"The tools of Apache Kafka {KAFKA_VERSION} under their own names, with their flags and their output, "
        "installed beside `headrace`; they work with a Headrace broker and with Apache Kafka alike. An option that "
        "has an older spelling takes that too."
    )
    index = table(("tool", "what it does"), [(_link(name), plain(_about(tool))) for name, tool in tools.items()])
    return whole("Kafka's tools", intro, index, *(_section(name, tool) for name, tool in tools.items()))


def _link(name: str) -> str:
    return f"[`{name}`](#{anchor(name)})"


def _about(tool: ModuleType) -> str:
    """What it says of itself; a tool without a text of its own says it in the first line of its module."""
    said = getattr(tool, "ABOUT", None) or (tool.__doc__ or "").partition("\n")[0].rpartition("`: ")[2]
    words = str(said).partition("\nUsage:")[0]
    return words[:1].upper() + words[1:]


def _section(name: str, tool: ModuleType) -> str:
    usage = getattr(tool, "USAGE", "").removeprefix("USAGE: ") or _usage(tool)
    parts = [f"## {name}", plain(_about(tool)), block(usage) if usage else ""]
    options: tuple[Option, ...] = getattr(tool, "OPTIONS", ())
    if options:
        parts.append(table(("option", "default", "what it does"), [_row(option) for option in options]))
    return "\n\n".join(part for part in parts if part)


def _usage(tool: ModuleType) -> str:
    return str(getattr(tool, "ABOUT", "")).partition("\nUsage: ")[2]


def _row(option: Option) -> tuple[str, str, str]:
    names = " / ".join(option.spellings)
    value = f" <{option.value}>" if option.value else " …" if option.value is not None else ""
    return code(names + value), code("" if option.default is None else str(option.default)), plain(option.help)
