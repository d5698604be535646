"""What Spark says of an error, as one line for a person: without its stack, its SQL state and its error class.

A name that does not resolve, which is the commonest mistake, is said with the name that was probably meant.
"""

import difflib
import logging
import re

_UNRESOLVED = re.compile(
    r"\[(?:UNRESOLVED_(?:COLUMN|MAP_KEY)|FIELD_NOT_FOUND)[^\]]*\] .*?(?:with name|struct field) (?P<name>`.*?`)"
    r"(?: cannot be resolved| in )(?:.*?\[(?P<proposal>`.*?`)\])?",
    re.DOTALL,
)
_FIELDS = re.compile(r"No such struct field (?P<name>`.*?`) in (?P<known>`.*?`)(?:\.|$| SQLSTATE)", re.DOTALL)
_ATTRIBUTE = re.compile(r"\[ATTRIBUTE_NOT_SUPPORTED\] Attribute `(?P<name>.*?)` is not supported")
_ROUTINE = re.compile(r"\[UNRESOLVED_ROUTINE\] Cannot resolve routine (?P<name>`.*?`)")
_CLASS = re.compile(r"^\[[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*\] ")
NAMES_SHOWN_MAX = 5


def first_line(error: BaseException | str) -> str:
    """What Spark says without its stack and its SQL state."""
    text = str(error).strip()
    said = wrong_name(text)
    if said is not None:
        return said
    lines = text.splitlines()
    return _CLASS.sub("", lines[0].split(" SQLSTATE:")[0]) if lines else type(error).__name__


def wrong_name(text: str) -> str | None:
    """A name that is not known, and what was probably meant; None where the error is another."""
    if found := _FIELDS.search(text):
        return _meant(f"no field {_plain(found['name'])!r}", found["name"], found["known"])
    if found := _UNRESOLVED.search(text):
        return _meant(f"no column {_plain(found['name'])!r}", found["name"], found["proposal"])
    if found := _ATTRIBUTE.search(text):
        return f"no column or method {found['name']!r}"
    if found := _ROUTINE.search(text):
        return f"no function {_plain(found['name'])!r}"
    return None


def _meant(what: str, name: str, proposal: str | None) -> str:
    known = [_plain(each) for each in re.findall(r"(?:`[^`]*`\.?)+", proposal or "")]
    wanted = _plain(name)
    near = difflib.get_close_matches(wanted.lower(), [each.lower() for each in known], n=1)
    if near:
        meant = next(each for each in known if each.lower() == near[0])
        return f"{what}; did you mean {meant!r}?"
    return f"{what}; there is {', '.join(known[:NAMES_SHOWN_MAX])}" if known else what


def _plain(name: str) -> str:
    return name.replace("`", "")


def silence_query_log() -> None:
    """PySpark prints each of its errors as a line of JSON as well, beside the exception that it raises."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
