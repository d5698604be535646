"""Every command of `headrace`, from click's own tree: usage, help, arguments, options."""

import inspect
from collections.abc import Iterator

import click
from page_parts import anchor, block, code, plain, table, whole

from headrace.cli.main import headrace

COMMON = ("help", "version")  # on every command, and said once


def page() -> str:
    commands = list(_walk(click.Context(headrace, info_name="headrace")))
    index = table(
        ("command", "what it does"),
        [
            (f"[`{context.command_path}`](#{anchor(context.command_path)})", plain(_short(context)))
            for context in commands
            if not isinstance(context.command, click.Group)
        ],
    )
    intro = (
        "Every command has `--help`. What goes wrong is one line on stderr, and the exit code is not 0; "
        "`--debug` shows where it happened."
    )
    return whole("Commands", intro, index, *(_section(context) for context in commands))


def _walk(context: click.Context) -> Iterator[click.Context]:
    yield context
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if command is not None and not command.hidden:
                yield from _walk(click.Context(command, info_name=name, parent=context))


def _short(context: click.Context) -> str:
    return context.command.get_short_help_str(limit=200)


def _section(context: click.Context) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"## {context.command_path}", block(usage), *_prose(command.help or ""), *_prose(command.epilog or "")]
    rows = [_row(context, each) for each in command.params if isinstance(each, click.Option) and not each.hidden]
    if any(rows):
        parts.append(table(("option", "default", "what it does"), [row for row in rows if row]))
    return "\n\n".join(parts)


def _prose(text: str) -> Iterator[str]:
    r"""Paragraphs as click prints them: one that begins with \b, or that is indented, keeps its lines."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if not paragraph.strip():
            continue
        if paragraph.startswith("\b"):
            yield block(paragraph.removeprefix("\b").strip("\n"))
        else:
            yield plain(paragraph)


def _row(context: click.Context, option: click.Option) -> tuple[str, str, str] | None:
    if option.name in COMMON:
        return None
    names = ", ".join((*option.opts, *option.secondary_opts))
    metavar = "" if option.is_flag or option.count else option.make_metavar(context).replace(" RANGE", "")
    spelling = code(f"{names} {metavar}".strip())
    words = option.help or ""
    default = ""
    if "[default:" in words:  # said by hand, where the default is made elsewhere
        words, _, said = words.partition("[default:")
        default = said.rstrip("] ").strip()
    elif not option.is_flag and option.default is not None and option.show_default is not False:
        default = _default(option)
    more = []
    if option.envvar and f"${option.envvar}" not in words:
        more.append(f"Also ${option.envvar}.")
    if option.required:
        more.append("Required.")
    if bounds := _bounds(option.type):
        more.append(bounds)
    return spelling, code(default), plain(" ".join([words.strip(), *more]))


def _default(option: click.Option) -> str:
    value = option.default
    if callable(value) or "UNSET" in repr(value):
        return ""
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return str(value)


def _bounds(kind: click.ParamType) -> str:
    if not isinstance(kind, click.IntRange | click.FloatRange):
        return ""
    if kind.min is not None and kind.max is not None:
        return f"From {kind.min} to {kind.max}."
    return f"At least {kind.min}." if kind.min is not None else ""
