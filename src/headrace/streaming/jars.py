"""The jars that Spark needs, pinned in `jars.lock` with their checksums, fetched once into the cache directory.

Spark's own resolver fetches them, so that its settings for repositories and mirrors hold. A jar is used only when
its SHA-256 is the pinned one; one that is torn or wrong is fetched again. When all are there, nothing is fetched.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files

from headrace.core.cache_directory import cache_directory
from headrace.core.errors import OperatorError
from headrace.streaming.cache import made, replacing
from headrace.streaming.java import Java

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Jar:
    group: str
    name: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"


@dataclass(frozen=True, kw_only=True)
class Lock:
    packages: dict[str, str]  # of PyPI, by name
    jars: tuple[Jar, ...]
    s3_jars: tuple[Jar, ...] = ()


@functools.cache
def lock() -> Lock:
    """What `jars.lock` says."""
    content = tomllib.loads(files("headrace.streaming").joinpath("jars.lock").read_text("utf-8"))
    return Lock(
        packages=content["packages"],
        jars=tuple(Jar(**jar) for jar in content["jar"]),
        s3_jars=tuple(Jar(**jar) for jar in content["s3-jar"]),
    )


def fits(version: str, pinned: str) -> bool:
    """Whether a version begins with what is pinned, part by part."""
    parts = pinned.split(".")
    return version.split(".")[: len(parts)] == parts


def jars_directory() -> str:
    return os.path.join(cache_directory(), "jars")


def jar_path(jar: Jar, directory: str) -> str:
    return os.path.join(directory, jar.file_name)


def sha256_of(path: str) -> str | None:
    """None when there is no such file."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OperatorError(f"{path}: cannot be read: {reason}; delete it, and it is fetched again") from error
    return digest.hexdigest()


def missing(jars: Sequence[Jar], directory: str) -> tuple[Jar, ...]:
    """Those that are not in the directory, or not with the pinned checksum."""
    return tuple(jar for jar in jars if sha256_of(jar_path(jar, directory)) != jar.sha256)


Resolve = Callable[[Sequence[str], str], Sequence[str]]
"""From coordinates and a directory to work in to the paths of the jars there, in the same order."""


def ready_jars(
    java: Callable[[], Java],
    *,
    s3: bool = False,
    say: Callable[[str], None] = lambda line: None,
    resolve: Resolve | None = None,
) -> tuple[str, ...]:
    """The paths of all jars, right and whole; what is missing is fetched. `java` is asked only when it is needed."""
    directory = jars_directory()
    jars = lock().jars + (lock().s3_jars if s3 else ())
    if wanted := missing(jars, directory):
        made(directory)
        with _alone(directory):  # another process may fetch the same ones at the same time: then it has, now
            if wanted := missing(wanted, directory):
                count = f"{len(wanted)} jar" + ("s" if len(wanted) > 1 else "")
                say(f"fetching {count} for Spark into {directory}, once")
                _fetch(wanted, directory, resolve or functools.partial(_resolve_with_spark, java()))
    return tuple(jar_path(jar, directory) for jar in jars)


@contextmanager
def _alone(directory: str) -> Iterator[None]:
    """One process at a time; the kernel lets go of the lock when its holder dies."""
    with open(os.path.join(directory, ".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(jars: Sequence[Jar], directory: str, resolve: Resolve) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=directory) as work:
        for jar, source in zip(jars, resolve([jar.coordinates for jar in jars], work), strict=True):
            with replacing(jar_path(jar, directory)) as temporary:
                shutil.copyfile(source, temporary)
                check(jar, sha256_of(temporary))
                os.chmod(temporary, 0o644)


def check(jar: Jar, found: str | None) -> None:
    if found != jar.sha256:
        raise OperatorError(
            f"{jar.coordinates}: its SHA-256 is {found}, but {jar.sha256} is pinned; the repository that Spark "
            "asks holds another file: set spark.jars.ivySettings or DEFAULT_ARTIFACT_REPOSITORY to one you trust"
        )


def _resolve_with_spark(java: Java, coordinates: Sequence[str], work: str) -> Sequence[str]:
    """Asks Spark's own resolver, in a small JVM of its own, for just these jars and nothing that they depend on."""
    from headrace.streaming.gateway import Gateway
    from headrace.streaming.spark_internals.jvm import maven_jars

    log = os.path.join(work, "ivy.log")
    with Gateway.started(java, {"spark.driver.memory": "256m"}, log_path=log) as gateway:
        try:
            paths = maven_jars(gateway.gateway, coordinates, os.path.join(work, "ivy"))
        except Exception as error:
            raise OperatorError(
                f"Spark's jars could not be fetched: {_reason(error)}; it needs the network once (a mirror: set "
                "DEFAULT_ARTIFACT_REPOSITORY), then run: headrace doctor --fetch"
            ) from error
    by_name = {os.path.basename(path): path for path in paths}
    return [by_name[f"{group}_{name}-{version}.jar"] for group, name, version in (c.split(":") for c in coordinates)]


def _reason(error: Exception) -> str:
    java_exception = getattr(error, "java_exception", None)
    text = str(java_exception.getMessage() if java_exception is not None else error)
    return " ".join(text.split())[:300]
