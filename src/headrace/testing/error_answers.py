"""An answer that refuses a request with a given error, for every request there is: made from Kafka's schemas.

Where the answer has one error code for everything, that is set. Otherwise the answer names what the request named,
topics and partitions above all, each with the error. Nothing here touches a broker.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from headrace.protocol.api_keys import FETCH, METADATA, OFFSET_FETCH
from headrace.protocol.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)
from headrace.protocol.message_fields import Default, SchemaField, schema_fields
from headrace.protocol.messages import message_fields

# Of a fetch session; any other error of a fetch is a partition's.
_SESSION_ERRORS = frozenset({FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR})
_ERRORS = frozenset({"error_code", "partition_error_code"})
# Fields that are one thing under several names.
_PARTITIONS = frozenset({"partition_index", "partition", "index"})
_NAMES = frozenset({"name", "topic", "topic_name"})
_GROUPS = frozenset({"group_id", "key", "transactional_id"})
_TYPES: dict[str, type] = {"string": str, "uuid": UUID, "bytes": bytes, "bool": bool}


def error_answer(api_key: int, version: int, request: Any, code: int) -> dict[str, object]:
    """The body of the answer to the decoded `request`."""
    asked = _Asked(message_fields(api_key, version, "request"), request)
    fields = message_fields(api_key, version, "response")
    overall = any(field.name in _ERRORS for field in fields)
    by_part = not overall or api_key == METADATA or (api_key == FETCH and code not in _SESSION_ERRORS)
    shallow = api_key == OFFSET_FETCH  # its errors are the coordinator's, and stand at the group
    body = _mirrored(fields, asked, code, shallow=shallow, own_error=not by_part)
    if overall and by_part and not any(isinstance(value, list) and value for value in body.values()):
        body["error_code"] = code  # nothing was named: the whole is refused
    return body


class _Asked:
    """A part of the request: an entity with its fields, or one bare value of a list."""

    def __init__(self, fields: Sequence[SchemaField], value: Any) -> None:
        self._fields = fields
        self.value = value

    def lists(self) -> "list[tuple[str, list[_Asked]]]":
        found = []
        for field in self._fields:
            held = getattr(self.value, field.name, None) if field.array else None
            if held:
                inner = list(schema_fields(field.python_type)) if field.kafka_type == "entity" else []
                found.append((field.name, [_Asked(inner, each) for each in held]))
        return found

    def get(self, name: str) -> Any:
        if not self._fields:
            return self.value if name in _PARTITIONS | _NAMES | _GROUPS else None
        same = next((names for names in (_PARTITIONS, _NAMES) if name in names), frozenset({name}))
        for each in (name, *same):
            if (found := getattr(self.value, each, None)) is not None:
                return found
        return None


def _mirrored(
    fields: Sequence[SchemaField], asked: _Asked, code: int, *, shallow: bool, own_error: bool
) -> dict[str, object]:
    lists = asked.lists()
    carriers = [field.name for field in fields if _carries_error(field)]
    body: dict[str, object] = {}
    for field in fields:
        if field.name in _ERRORS:
            body[field.name] = code if own_error else 0
        elif field.array:
            body[field.name] = []
            if field.name in carriers and lists and not own_error:
                same = dict(lists).get(field.name) or (lists[0][1] if field.name == carriers[0] else [])
                body[field.name] = [_item(field, each, code, shallow) for each in same]
        elif field.tag is None:
            body[field.name] = _plain(field, asked)
    return body


def _item(field: SchemaField, asked: _Asked, code: int, shallow: bool) -> dict[str, object]:
    inner = list(schema_fields(field.python_type))
    has_own = any(each.name in _ERRORS for each in inner)
    deeper = any(_carries_error(each) for each in inner) and bool(asked.lists())
    # The error stands where it is most exact: at the partition, if any were named.
    return _mirrored(inner, asked, code, shallow=shallow, own_error=has_own and (shallow or not deeper))


def _carries_error(field: SchemaField) -> bool:
    if not field.array or field.kafka_type != "entity":
        return False
    return any(each.name in _ERRORS or _carries_error(each) for each in schema_fields(field.python_type))


def _plain(field: SchemaField, asked: _Asked) -> object:
    """As the request has it, else its default, else what is nothing for its type."""
    kind = _TYPES.get(field.kafka_type, int)
    held = asked.get(field.name)
    if isinstance(held, kind) and isinstance(held, bool) is (kind is bool):
        return held
    if field.default is not Default.ABSENT:
        return field.default
    if field.nullable:
        return None
    if field.kafka_type == "entity":
        return _mirrored(list(schema_fields(field.python_type)), _Asked([], None), 0, shallow=False, own_error=False)
    return UUID(int=0) if kind is UUID else kind()
