"""How a command of `headrace` fails: one line on stderr, and exit code 1."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


def _say(error: Exception) -> None:
    from headrace.core.errors import HeadraceError

    if isinstance(error, HeadraceError):
        what = str(error)
    elif isinstance(error, OSError) and error.filename:
        what = f"{error.filename}: {(error.strerror or str(error)).lower()}"
    else:
        what = f"unexpected {type(error).__name__}: {error}; run it with --debug to see where, and report it"
    click.echo(f"headrace: {what}", err=True)


@contextmanager
def one_line_errors(debug: bool, *, stopped: str = "stopped") -> Iterator[None]:
    """Whatever goes wrong is one line on stderr and exit code 1; `stopped` is what Ctrl-C says."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python must not complain about that when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        click.echo(f"headrace: {stopped}", err=True)
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        _say(error)
        sys.exit(1)
