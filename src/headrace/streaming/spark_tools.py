"""Spark's own tools, `pyspark` and `spark-submit`, with Delta and Kafka ready: their command lines and environment.

They stay what they are: the catalog, the warehouse and the log are those of any PySpark. Added are the pinned jars,
Delta's settings, the Java that was found and this Python. Nothing here starts anything.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from headrace.streaming.checks import check_spark_installed
from headrace.streaming.gateway import environment
from headrace.streaming.jars import ready_jars
from headrace.streaming.java import find_java
from headrace.streaming.python_session import DELTA_SETTINGS, MASTER_VARIABLE
from headrace.streaming.quick_start import spark_home
from headrace.streaming.s3 import s3_settings
from headrace.streaming.settings import LOOPBACK

Tool = Literal["pyspark", "spark-submit"]
# Options of spark-submit that take no value.
_FLAGS = frozenset({"--verbose", "-v", "--supervise", "--help", "-h", "--version"})


def tool_command(
    tool: Tool,
    args: Sequence[str],
    *,
    s3: bool = False,
    environ: Mapping[str, str] = os.environ,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[list[str], dict[str, str]]:
    """What to execute, and in which environment. Jars that are missing are fetched first."""
    check_spark_installed()
    java = find_java()
    jars = ready_jars(lambda: java, s3=s3, say=say)
    settings = {**DELTA_SETTINGS, **(s3_settings(environ) if s3 else {})}
    command = command_line(os.path.join(spark_home(), "bin", tool), args, jars=jars, settings=settings, environ=environ)
    own = {"PYSPARK_PYTHON": sys.executable} if runs_here(args, environ) else {}
    driver = environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable  # IPython, if the user says so
    address = {"SPARK_LOCAL_IP": LOOPBACK} if runs_here(args, environ) and "SPARK_LOCAL_IP" not in environ else {}
    return command, {**environ, **environment(java), **own, **address, "PYSPARK_DRIVER_PYTHON": driver}


def command_line(
    tool: str,
    args: Sequence[str],
    *,
    jars: Sequence[str],
    settings: Mapping[str, str],
    environ: Mapping[str, str],
) -> list[str]:
    """Ours come first, for of two settings the last counts; jars that the user names come beside ours, for a second
    --jars would replace the first."""
    options, program = _parsed(args)
    more = [jar for name, value in options if name == "--jars" and value for jar in value.split(",")]
    words = [tool, "--jars", ",".join([*jars, *more])]
    if (master := environ.get(MASTER_VARIABLE)) and not any(name == "--master" for name, _ in options):
        words += ["--master", master]
    for key, value in settings.items():
        words += ["--conf", f"{key}={value}"]
    for name, given in options:
        if name != "--jars":
            words += [name] if given is None else [name, given]
    return [*words, *program]


def runs_here(args: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether the driver's Python and the workers' are one on this machine."""
    named = [value for name, value in _parsed(args)[0] if name == "--master" and value]
    return (named[-1] if named else environ.get(MASTER_VARIABLE) or "local[*]").startswith("local")


def _parsed(args: Sequence[str]) -> tuple[list[tuple[str, str | None]], list[str]]:
    """The tool's options, and the program with all that is behind it, whose own options those are."""
    words, options = list(args), list[tuple[str, str | None]]()
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        if equals:
            options.append((name, value))
        elif name in _FLAGS or not words:
            options.append((name, None))
        else:
            options.append((name, words.pop(0)))
    return options, words
