"""A schema for JSON records from a sample of them. Pure: values in, Spark's DDL out.

Fields are in the order in which they were first seen. What differs from record to record becomes the narrowest type
that holds all of it: integers and decimals a double, anything else a string.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

_NULL = "void"


def infer_ddl(values: Iterable[bytes]) -> str | None:
    """None when no value of the sample is a JSON object."""
    merged: Any = None
    for value in values:
        try:
            record = json.loads(value)
        except (ValueError, RecursionError):
            continue  # what cannot be parsed goes to quarantine when it is read; it says nothing of the schema
        if isinstance(record, dict):
            merged = _merge(merged, _type(record)) if merged is not None else _type(record)
    if not merged:
        return None
    return ", ".join(f"{_quoted(name)} {_ddl(kind)}" for name, kind in merged.items())


def _type(value: Any) -> Any:
    match value:
        case None:
            return _NULL
        case bool():
            return "boolean"
        case int():
            return "bigint" if -(2**63) <= value < 2**63 else "string"
        case float():
            return "double"
        case dict():
            return {name: _type(each) for name, each in value.items()}
        case list():
            element: Any = _NULL
            for each in value:
                element = _merge(element, _type(each))
            return [element]
    return "string"


def _merge(left: Any, right: Any) -> Any:
    if left == right or right == _NULL:
        return left
    if left == _NULL:
        return right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        names = dict.fromkeys([*left, *right])
        return {name: _merge(left.get(name, _NULL), right.get(name, _NULL)) for name in names}
    if isinstance(left, list) and isinstance(right, list):
        return [_merge(left[0], right[0])]
    if {left, right} == {"bigint", "double"} if isinstance(left, str) and isinstance(right, str) else False:
        return "double"
    return "string"


def _ddl(kind: Any) -> str:
    if isinstance(kind, Mapping):
        if not kind:
            return "map<string,string>"
        return "struct<" + ", ".join(f"{_quoted(name)}: {_ddl(each)}" for name, each in kind.items()) + ">"
    if isinstance(kind, list):
        return f"array<{_ddl(kind[0])}>"
    return "string" if kind == _NULL else str(kind)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
