"""What the readers and writers need to know about one field of a kio schema, found out once per schema.

kio's dataclasses are the only source of field names, types, tags and defaults. Nothing here touches bytes.
"""

import enum
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from headrace.core.errors import InvariantError


class Default(enum.Enum):
    ABSENT = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    name: str
    kafka_type: str  # "entity" where kio has a nested dataclass
    python_type: type[Any]  # of one item, if an array
    array: bool
    nullable: bool
    tag: int | None
    default: object  # Default.ABSENT: kio has none, and the value must be given


def schema_fields(schema: type[Any]) -> Iterator[SchemaField]:
    for field in fields(schema):
        array, nullable, item = _unwrap(field.type, field.name)
        tag = field.metadata.get("tag")
        yield SchemaField(
            name=field.name,
            kafka_type="entity" if is_dataclass(item) else field.metadata["kafka_type"],
            python_type=item,
            array=array,
            # A tagged field says "null" by its absence, so its value is always there.
            nullable=nullable and tag is None,
            tag=tag,
            default=Default.ABSENT if field.default is MISSING else field.default,
        )


def _unwrap(annotation: Any, name: str) -> tuple[bool, bool, type[Any]]:
    """(is it an array, may it be null, the type of the value or of one item)."""
    annotation, nullable = _without_null(annotation, name)
    array = get_origin(annotation) is tuple
    if array:
        annotation, _ = _without_null(get_args(annotation)[0], name)
    if not isinstance(annotation, type):
        raise InvariantError(f"kio field {name}: {annotation} is not a type")
    return array, nullable, annotation


def _without_null(annotation: Any, name: str) -> tuple[Any, bool]:
    if get_origin(annotation) not in (UnionType, Union):
        return annotation, False
    inner = [option for option in get_args(annotation) if option is not NoneType]
    if len(inner) != 1:
        raise InvariantError(f"kio field {name}: {annotation} is not one type or null")
    return inner[0], True
