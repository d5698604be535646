"""A click group that imports a command only when it is run: `headrace --help` must load nothing heavy.

The table of a group says where each command is and what it is for, in the order in which help shows them. A name that
does not exist is answered with the one that was probably meant.
"""

import difflib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import click


class CommandEntry(NamedTuple):
    """Where a command is (`module:attribute`), its line in the group's help, and the heading it stands under."""

    where: str
    help: str
    section: str = "Commands"


class LazyGroup(click.Group):
    def __init__(self, *args: Any, places: Mapping[str, CommandEntry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.places, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self.places.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = place.where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = str(args[0])
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(unknown("command", name, self.list_commands(ctx)), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            place = self.places.get(name)
            if place is not None:
                sections.setdefault(place.section, []).append((name, place.help))
            elif (command := self.get_command(ctx, name)) is not None:
                sections.setdefault("Commands", []).append((name, command.get_short_help_str(100)))
        width = max((len(name) for rows in sections.values() for name, _ in rows), default=0)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in rows])


class RootGroup(LazyGroup):
    """The program itself: a wrong command line, too, is one line."""

    def main(self, args: Sequence[str] | None = None, *more: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        run: Callable[..., Any] = super().main
        if not standalone_mode:
            return run(args, *more, standalone_mode=False, **kwargs)
        try:
            result = run(args, *more, standalone_mode=False, **kwargs)
        except click.UsageError as error:
            where = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
            click.echo(f"headrace: {_line(error.format_message())}{where}", err=True)
            sys.exit(error.exit_code)
        except click.ClickException as error:
            click.echo(f"headrace: {_line(error.format_message())}", err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            click.echo("headrace: stopped", err=True)
            sys.exit(130)
        sys.exit(result if isinstance(result, int) else 0)


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def unknown(kind: str, name: str, known: list[str]) -> str:
    """`no such command 'tpic'; did you mean topic?`"""
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}"
    return f"no such {kind} {name!r}; {hint}"
