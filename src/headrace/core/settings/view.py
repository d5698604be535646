"""Settings as others see them: the reference table, and the entries that DescribeConfigs answers with."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.core.listeners import format_listeners
from headrace.core.settings.types import Kind, format_value, setting_of

if TYPE_CHECKING:
    from headrace.core.settings.broker import BrokerSettings

# Fields that Kafka shows joined, as one of its listener keys.
_JOINED = {
    "host": ("listeners", "The addresses clients connect to, each NAME://host:port; port 0 picks a free one."),
    "advertised_host": (
        "advertised.listeners",
        "The addresses clients are told, by the names in listeners, where they differ; what is left out is not told.",
    ),
}
_LISTENER_FIELDS = ("host", "port", "advertised_host", "advertised_port")


class KafkaItem(NamedTuple):
    key: str
    value: str | None  # as Kafka prints it; None where Kafka shows null
    is_default: bool
    type: Kind  # an int: the number that DescribeConfigs carries
    doc: str
    dynamic: bool  # False: read-only


def kafka_items(settings: "BrokerSettings") -> Iterator[KafkaItem]:
    """Every setting by its Kafka key, as the DescribeConfigs handler shows a broker.

    Pass `dataclasses.replace(settings, port=bound_port)` where port 0 was asked for.
    """
    given = settings.given
    for field in dataclasses.fields(settings):
        described = setting_of(field)
        if field.name in _JOINED:
            key, doc = _JOINED[field.name]
            untouched = key not in given and not any(_changed(settings, name) for name in _pair(field.name))
            yield KafkaItem(key, _joined(settings, field.name), untouched, Kind.LIST, doc, False)
        if described is None or field.name in _LISTENER_FIELDS:
            continue
        value = getattr(settings, field.name)
        by_alias = any(alias.key in given for alias in described.aliases)
        is_given = described.key in given or (not by_alias and value != field.default)
        text = None if described.null_by_default and not is_given else format_value(value)
        yield KafkaItem(described.key, text, not is_given, described.kind, described.help, described.dynamic)
        for alias in described.aliases:
            if alias.describe:
                text = format_value(value) if alias.scale == 1 else given.get(alias.key, alias.kafka_default)
                yield KafkaItem(alias.key, text, alias.key not in given, alias.kind, described.help, False)


def describe_fields(fields: Sequence["dataclasses.Field[Any]"]) -> list[tuple[str, str, str, str]]:
    rows = []
    for field in fields:
        described = setting_of(field)
        if field.name in _JOINED:
            key, doc = _JOINED[field.name]
            rows.append((key, "list", "PLAINTEXT://127.0.0.1:9092" if key == "listeners" else "", doc))
        if described and field.name not in _LISTENER_FIELDS:
            kind = described.kind.name.lower()
            rows.append((described.key, kind, format_value(field.default), described.help))
    return rows


def _pair(host_field: str) -> tuple[str, str]:
    return host_field, host_field.replace("host", "port")


def _changed(settings: "BrokerSettings", name: str) -> bool:
    default = type(settings).__dataclass_fields__[name].default
    return bool(getattr(settings, name) != default)


def _joined(settings: "BrokerSettings", name: str) -> str | None:
    if name == "host":
        return format_listeners(settings.served())
    if not (settings.advertised_listeners or settings.advertised_host or settings.advertised_port):
        return None
    return format_listeners(settings.told({each.name: each.port for each in settings.served()}))
