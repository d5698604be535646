"""The options of the commands that run a server; `serving` has the rest of what they have in common."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from headrace.core.settings.broker import GivenSetting

_Command = TypeVar("_Command", bound=Callable[..., Any])
_LEVELS = ("debug", "info", "warning", "error")


def logging_options(command: _Command) -> _Command:
    """--log-level, --log-format and --debug."""
    for option in (
        click.option("--debug", is_flag=True, envvar="HEADRACE_DEBUG", help="Log everything, show tracebacks."),
        click.option(
            "--log-format",
            type=click.Choice(("text", "json")),
            default="text",
            envvar="HEADRACE_LOG_FORMAT",
            help="How log lines on stderr look.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(_LEVELS, case_sensitive=False),
            default="warning",
            show_default=True,
            envvar="HEADRACE_LOG_LEVEL",
            help="What is logged on stderr.",
        ),
    ):
        command = option(command)
    return command


def setting_flags(flag: str, pairs: Sequence[str]) -> "list[GivenSetting]":
    """The `key=value` arguments of a flag; one that is neither is a usage error."""
    from headrace.core.errors import OperatorError
    from headrace.core.settings.broker import flags_source

    try:
        return flags_source(flag, pairs)
    except OperatorError as error:
        raise click.UsageError(str(error)) from error
