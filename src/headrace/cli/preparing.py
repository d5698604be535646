"""What Spark needs on this machine, made once: its jars, and an archive of its classes that halves its start.

The JVM of the first pipeline that runs leaves the archive as it ends, so that nobody waits for it. `headrace doctor
--fetch` makes it ahead of time with a training run, in a process of its own with a broker of its own. Without an
archive everything works the same, a few seconds slower; so whatever goes wrong is one line, and never an error.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.streaming.quick_start import QuickStarts

TRAINING_S_MAX = 600.0


def timed(say: Callable[[str], None]) -> Callable[[str], None]:
    """Says a step as it begins, with the time since the first."""
    began = time.monotonic()
    return lambda line: say(f"{time.monotonic() - began:6.1f} s  {line}")


def prepare(say: Callable[[str], None], *, train: bool = False) -> None:
    """Fetches what is missing, and makes quick starts possible for this Java and these jars. `train` makes the archive
    now, where there is none."""
    from headrace.core.errors import OperatorError
    from headrace.streaming.checks import check_spark_installed
    from headrace.streaming.jars import ready_jars
    from headrace.streaming.java import find_java
    from headrace.streaming.quick_start import QuickStarts
    from headrace.streaming.training import module_options

    check_spark_installed()
    java = find_java()
    starts = QuickStarts(java, ready_jars(lambda: java, say=say))
    if not starts.wanted or _made(starts, train):
        return
    with starts.alone():
        quick = starts.found()  # perhaps made by another process meanwhile
        try:
            if quick is None:
                starts.link(module_options(java))
            if train and (quick is None or quick.archive is None):
                say("preparing Spark for quick starts on this machine, once; this may take a minute")
                _train(starts)
        except (OSError, OperatorError, subprocess.SubprocessError) as error:
            say(f"Spark starts without a class archive, a few seconds slower: {error}")


def _made(starts: "QuickStarts", train: bool) -> bool:
    quick = starts.found()
    return quick is not None and (quick.archive is not None or not train)


def _train(starts: "QuickStarts") -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-training-") as directory, starts.archiving() as archive:
        subprocess.run(
            [sys.executable, "-m", "headrace.cli.preparing", directory, archive],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRAINING_S_MAX,
            check=True,
        )


def main(directory: str, archive: str) -> None:
    from headrace import Broker
    from headrace.streaming.training import train

    with Broker() as broker:
        train(broker.bootstrap_servers, directory, archive)


if __name__ == "__main__":
    main(*sys.argv[1:])
