"""Classes of the JVM that a session has, by their names.

Where a class or a method is missing, py4j says so in three ways, each only when it is used. Here all of them are a
`MissingError`, so that a caller can ask the public API instead and any other error stays what it is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from headrace.core.errors import OperatorError
from headrace.streaming.spark_internals.table import CHECKED

_Answer = TypeVar("_Answer")
_SAID_MAX = 200


class MissingError(OperatorError):
    """A part of Spark or Delta that this session does not have."""

    def __init__(self, what: str) -> None:
        packages = " and ".join(f"{name} {versions[-1]}" for name, versions in CHECKED.items())
        super().__init__(
            f"Spark: this session has no {what}, which pipelines need; use a session of {packages}: "
            f"pip install 'headrace[spark]'"
        )


def java_class(session: Any, name: str) -> Any:
    """A class, or a Scala object, by its full name."""
    if not has_jvm(session):
        raise MissingError("JVM of its own")
    found = session._jvm
    with reached():
        for part in name.split("."):
            found = getattr(found, part)
    if type(found).__name__ == "JavaPackage":  # what py4j takes a name for that it does not know
        raise MissingError(name)
    return found


def java_session(session: Any) -> Any:
    """Spark's own object behind a session."""
    found = getattr(session, "_jsparkSession", None)
    if found is None:
        raise MissingError("JVM of its own")
    return found


def has_jvm(session: Any) -> bool:
    """False for a session of Spark Connect: its JVM is another machine's."""
    return getattr(session, "_jvm", None) is not None


def has_class(session: Any, name: str) -> bool:
    """Whether Spark's class loader knows it. Without a JVM it counts as absent, and the session is refused."""
    try:
        java_class(session, "java.lang.Thread").currentThread().getContextClassLoader().loadClass(name)
    except Exception:
        return False
    return True


def answer(internal: Callable[[], _Answer], public: Callable[[], _Answer]) -> _Answer:
    """The public API's where the internal one is missing."""
    try:
        with reached():
            return internal()
    except MissingError:
        return public()


@contextmanager
def reached() -> Iterator[None]:
    """What Python and py4j say of an attribute, a class or a method that is missing, as a `MissingError`."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        name = getattr(error, "name", None) or ""
        if not name.startswith("_j") and "JavaPackage" not in str(error):
            raise  # a fault of ours
        raise MissingError(str(error)) from error
    except Exception as error:
        # Exactly this class: those below it are Java's own exceptions, and a JVM that went away.
        if type(error).__name__ != "Py4JError" or "does not exist" not in str(error):
            raise
        raise MissingError(" ".join(str(error).split())[:_SAID_MAX]) from error
