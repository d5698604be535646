"""Spark's internals are named in one package, and what is missing there is told from what goes wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import headrace
from headrace.core.errors import OperatorError
from headrace.streaming import spark_internals
from headrace.streaming.jars import lock
from headrace.streaming.spark_internals import jvm
from headrace.streaming.spark_internals.classes import MissingError, answer, has_class, has_jvm, java_class, reached
from headrace.streaming.spark_internals.table import CHECKED, INTERNALS

SOURCE, INTERNAL = Path(headrace.__file__).parent, Path(spark_internals.__file__).parent
NAMES = frozenset({"_jvm", "_jsc", "_jdf", "_jsq", "_jsparkSession", "_jspark_session", "_gateway", "java_gateway",
                   "_active_spark_context", "_sc", "py4j"})  # fmt: skip


def internals_named(code: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.Name(id=name):
                words = [name]
            case ast.ImportFrom(module=str(module), names=names):
                words = module.split(".") + [each.name for each in names]
            case ast.Import(names=names):
                words = [word for each in names for word in each.name.split(".")]
            case ast.Constant(value=str(text)):
                words = [text, *(["org.apache.spark"] if text.startswith("org.apache.spark.sql.catalyst") else [])]
            case _:
                continue
        yield from ((node.lineno, word) for word in words if word in NAMES or word == "org.apache.spark")


def test_no_other_module_names_an_internal() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        if INTERNAL not in path.parents
        for line, name in internals_named(path.read_text())
    ]
    assert not found, "move these into streaming/spark_internals"


@pytest.mark.parametrize(
    "code",
    [
        "spark._jvm.x()",
        "getattr(frame, '_jdf')",
        "SparkConf(_jvm=None)",
        "from pyspark.java_gateway import launch_gateway",
        "import py4j.protocol",
        "java_class(spark, 'org.apache.spark.sql.catalyst.plans')",
    ],
)
def test_an_internal_is_seen_however_it_is_named(code: str) -> None:
    assert list(internals_named(code))


def functions_of(module: ModuleType) -> set[str]:
    """What others may call: the names that the module itself defines."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", "") == module.__name__
    }


def test_the_table_lists_what_reaches_into_spark_and_its_versions_are_those_of_the_jars() -> None:
    modules = [
        import_module(f"{spark_internals.__name__}.{name}") for name in ("classes", "delta", "jvm", "plan", "query")
    ]
    defined = {name for module in modules for name in functions_of(module)}
    without = {"classes.MissingError", "classes.answer", "classes.reached", "delta.TableState", "plan.each_of"}
    assert {each.function for each in INTERNALS} == defined - without
    for each in INTERNALS:
        assert lock().packages[each.package] in CHECKED[each.package]


class JavaPackage:
    """As py4j's: it takes every name for that of a package below."""

    def __getattr__(self, name: str) -> JavaPackage:
        return JavaPackage()


JavaGatewayError = type("Py4JError", (Exception,), {})
JavaThrewError = type("Py4JJavaError", (JavaGatewayError,), {})


def test_a_class_that_the_jvm_lacks_is_missing_and_the_remedy_is_said() -> None:
    session = SimpleNamespace(_jvm=JavaPackage())
    assert has_jvm(session)
    with pytest.raises(MissingError, match=r"no org\.example\.Gone, .*pip install") as raised:
        java_class(session, "org.example.Gone")
    assert isinstance(raised.value, OperatorError)
    assert not has_class(session, "org.example.Gone")


def test_a_session_without_a_jvm_has_no_classes() -> None:
    session = SimpleNamespace(_jvm=None)
    assert not has_jvm(session)
    assert not has_jvm(SimpleNamespace())
    with pytest.raises(MissingError, match="JVM of its own"):
        java_class(session, "java.lang.Thread")
    assert not has_class(session, "java.lang.Thread")


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("no attribute", name="_jdf"),
        TypeError("'JavaPackage' object is not callable"),
        JavaGatewayError("Method update([class java.lang.Boolean]) does not exist"),
    ],
)
def test_what_is_missing_is_answered_by_the_public_api(error: Exception) -> None:
    def internal() -> str:
        raise error

    assert answer(internal, lambda: "public") == "public"
    with pytest.raises(MissingError), reached():
        internal()


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("no attribute", name="colums"),
        TypeError("unsupported operand"),
        JavaThrewError("the table does not exist"),
        JavaGatewayError("the connection was reset"),
        ValueError("something else"),
    ],
)
def test_what_goes_wrong_is_not_taken_for_missing(error: Exception) -> None:
    def internal() -> str:
        raise error

    with pytest.raises(type(error)) as raised:
        answer(internal, lambda: "public")
    assert raised.value is error


class Context:
    """A SparkContext without `_jsc`."""

    def __init__(self, parallelism: Any) -> None:
        self._parallelism = parallelism

    @property
    def defaultParallelism(self) -> int:  # noqa: N802 - the name that Spark gave it
        return int(self._parallelism)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (SimpleNamespace(_jsc=object()), True),
        (SimpleNamespace(_jsc=None), False),
        (Context(2), True),
        (Context("stopped"), False),
    ],
)
def test_a_session_runs_until_it_is_stopped(context: object, expected: bool) -> None:
    session: Any = SimpleNamespace(sparkContext=context)
    assert jvm.runs(session) is expected
