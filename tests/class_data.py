"""Archives of classes for the JVMs that tests start: with one, a JVM starts in about half the CPU time.

The first JVM of a kind leaves the archive as it ends by itself, once per machine; Java ignores one that does not fit.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from waits import WAIT_S_MAX


class ClassData:
    """The archive of one class path, which names jars one by one: Java archives no directories."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._left = None if archive.exists() else archive.with_suffix(f".{os.getpid()}.part")

    @property
    def flags(self) -> list[str]:
        """For every JVM of the kind."""
        return ["-Xshare:auto", "-Xlog:disable", *([] if self._left else [f"-XX:SharedArchiveFile={self._archive}"])]

    @property
    def leaving(self) -> list[str]:
        """For the one JVM that is ended by `end`."""
        return [f"-XX:ArchiveClassesAtExit={self._left}"] if self._left else []

    def end(self, process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
        """At once; the JVM that is to leave the archive takes the time to write it."""
        if self._left is not None:
            if process.stdin is not None:
                process.stdin.close()
            else:
                process.terminate()
            with suppress(subprocess.TimeoutExpired):
                if process.wait(WAIT_S_MAX) in (0, 143) and self._left.exists():
                    self._left.replace(self._archive)
            self._left.unlink(missing_ok=True)
        process.kill()
        process.wait()
