"""How a command of `headrace` fails: one line on stderr, and exit code 1."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def _say(what: str) -> None:
    print(f"headrace: {what}", file=sys.stderr, flush=True)


def _tell(error: Exception) -> None:
    from headrace.core.errors import HeadraceError

    if isinstance(error, HeadraceError):
        what = str(error)
    elif isinstance(error, OSError) and error.filename:
        what = f"{error.filename}: {(error.strerror or str(error)).lower()}"
    else:
        what = f"unexpected {type(error).__name__}: {error}; run it with --debug to see where, and report it"
    _say(what)


def _is_clicks(error: Exception) -> bool:
    """Whether it says how a command ends. A server that was started without a command line has no click."""
    click = sys.modules.get("click")
    return click is not None and isinstance(error, (click.ClickException, click.exceptions.Exit, click.Abort))


@contextmanager
def one_line_errors(debug: bool, *, stopped: str = "stopped") -> Iterator[None]:
    """Whatever goes wrong is one line on stderr and exit code 1; `stopped` is what Ctrl-C says."""
    try:
        yield
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python must not complain about that when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        _say(stopped)
        sys.exit(130)
    except Exception as error:
        if debug or _is_clicks(error):
            raise
        _tell(error)
        sys.exit(1)
