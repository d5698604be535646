"""Jars from Maven, fetched once into the user's cache directory; processes that want them at one time take turns."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

FETCH_S_MAX = 900.0


class Artifact(NamedTuple):
    group: str
    name: str
    version: str
    classifier: str = ""

    @property
    def xml(self) -> str:
        classifier = f"<classifier>{self.classifier}</classifier>" if self.classifier else ""
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version>{classifier}</dependency>"
        )


def missing_program(*names: str) -> str | None:
    return next((name for name in ("java", "mvn", *names) if shutil.which(name) is None), None)


def cache(name: str) -> Path:
    """A directory of its own for one set of jars, and what is made from them."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = Path(home) / "headrace" / name
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """One process at a time makes something there."""
    with open(directory / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def jars(name: str, artifacts: Sequence[Artifact]) -> list[Path]:
    """These artifacts and all that they need, in one order, for Java archives classes of one class path only."""
    directory = cache(name)
    wanted = hashlib.sha256(repr(list(artifacts)).encode()).hexdigest()[:12]
    found = directory / f"jars-{wanted}"
    with alone(directory):
        if not found.exists():
            _fetch(directory, found, artifacts)
    return sorted(found.glob("*.jar"))


def _fetch(directory: Path, found: Path, artifacts: Sequence[Artifact]) -> None:
    with tempfile.TemporaryDirectory(dir=directory) as work:
        wanted = "".join(each.xml for each in artifacts)
        Path(work, "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>headrace</groupId>'
            f"<artifactId>tests</artifactId><version>1</version><dependencies>{wanted}</dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"mvn ended with code {done.returncode}:\n{done.stdout}\n{done.stderr}")
        Path(work, "jars").rename(found)  # at once, so that what is there is whole
