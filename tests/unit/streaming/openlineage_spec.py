"""Whether an event is what OpenLineage's spec says: read into the classes that its authors generate from the spec.

Each part must name the revision of the schema that its class was made from, hold every field that is required there,
and no other.
"""

from __future__ import annotations

import types
import typing
from datetime import datetime
from enum import Enum
from typing import Any

import attr
from openlineage.client import facet_v2
from openlineage.client.generated.base import RunEvent

_FACETS = {
    name: kind
    for module in vars(facet_v2).values()
    if isinstance(module, types.ModuleType)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and attr.has(kind)
}


def check_event(event: dict[str, Any]) -> None:
    _read(RunEvent, event)
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None


def _read(kind: type[Any], value: dict[str, Any]) -> Any:
    """An object of an attrs class, whose own checks run as it is made."""
    given = dict(value)
    fields = {field.name: field for field in attr.fields(attr.resolve_types(kind))}
    for name in ("schemaURL", "_schemaURL"):
        if name in fields:
            url = given.pop(name)
            assert url == kind._get_schema(), f"{url} is not {kind._get_schema()}"
            producer = name.replace("schemaURL", "producer")
            assert given.get(producer), f"no {producer}"
    unknown = given.keys() - fields.keys()
    assert not unknown, f"{kind.__name__} has no {', '.join(sorted(unknown))}"
    return kind(**{fields[name].alias: _value(fields[name].type, each) for name, each in given.items()})


def _value(kind: Any, value: Any) -> Any:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        (kind,) = [each for each in typing.get_args(kind) if each is not type(None)]
    inner = typing.get_args(kind)
    match typing.get_origin(kind):
        case origin if origin is list:
            return [_value(inner[0], each) for each in value]
        case origin if origin is dict:
            return {name: _read(_FACETS[_name(each)], each) for name, each in value.items()}
    if attr.has(kind):
        return _read(kind, value)
    if issubclass(kind, Enum):
        return kind(value)
    assert isinstance(value, kind), f"{value!r} is not {kind.__name__}"
    return value


def _name(facet: dict[str, Any]) -> str:
    """Of a facet, from the address of its schema."""
    return str(facet["_schemaURL"]).rpartition("/")[2]
