"""What may be the path of a node."""

import re
from collections.abc import Iterator
from typing import Final

from headrace.protocol.zookeeper.codes import BAD_ARGUMENTS, RefusedError

# Control characters, private use, and what Java's strings hold as surrogates (all beyond U+FFFF) or as no character.
_BAD: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_DOTS: Final = re.compile(r"/\.{0,2}(/|$)")  # an empty name, `.` or `..`

SPECIAL: Final = frozenset(("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"))


def check(path: str) -> None:
    if path == "/":
        return
    if not path.startswith("/") or _DOTS.search(path) or _BAD.search(path):
        raise RefusedError(BAD_ARGUMENTS, path)


def parent(path: str) -> str:
    """Of a path that `check` takes, and is not the root."""
    return path[: path.rindex("/")] or "/"


def under(path: str) -> str:
    """What the paths of all nodes below begin with."""
    return "/" if path == "/" else path + "/"


def upwards(path: str) -> Iterator[str]:
    """The path, its parent, and so on to the root."""
    while path != "/":
        yield path
        path = parent(path)
    yield "/"
