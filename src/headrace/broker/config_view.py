"""Settings as DescribeConfigs shows them: the value in force, where it comes from, and what it would be
otherwise.

Kafka's chain from strong to weak: the topic's own, this broker's dynamic one, all brokers' dynamic one,
the static file, the default. Among a setting's several names (`log.retention.ms`, `.minutes`, `.hours`)
those that stand before the described one in the chain are left out, as Kafka does it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Self

from headrace.broker.catalog import CLUSTER_WIDE, THIS_BROKER
from headrace.broker.dynamic_settings import SETTINGS, DynamicSettings
from headrace.broker.topic_config import TOPIC_SETTINGS
from headrace.core.settings.broker import BrokerSettings, KafkaItem, kafka_items

TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT, BROKER_LOGGER = 1, 2, 3, 4, 5, 6

Synonym = tuple[str, str, int]  # name, value, source


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str | None
    source: int
    synonyms: list[Synonym]
    type: int
    doc: str
    read_only: bool = False


class ConfigView:
    """A look at all settings at one moment; used until they change, since making it takes milliseconds."""

    @classmethod
    def of(cls, dynamic: DynamicSettings) -> Self:
        if not isinstance(dynamic.view, cls):
            dynamic.view = cls(dynamic)
        return dynamic.view

    def __init__(self, dynamic: DynamicSettings) -> None:
        self._settings = dynamic.effective
        self._dynamic = dynamic
        static = {item.key: item.value or "" for item in kafka_items(dynamic.static) if not item.is_default}
        self._layers: list[tuple[Mapping[str, str], int]] = [
            (dynamic.layer(THIS_BROKER), DYNAMIC_BROKER),
            (dynamic.layer(CLUSTER_WIDE), DYNAMIC_DEFAULT),
            (static, STATIC_BROKER),
            (_defaults(), DEFAULT),
        ]
        self._broker: list[ConfigEntry] | None = None
        self._plain_topic: list[ConfigEntry] | None = None  # one that sets nothing itself

    def topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        if overrides:
            return self._topic(overrides)
        if self._plain_topic is None:
            self._plain_topic = self._topic(overrides)
        return self._plain_topic

    def _topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        entries = []
        for key, row in TOPIC_SETTINGS.items():
            if row.hidden and key not in overrides:
                continue
            value = row.text(overrides, self._settings)
            names = row.broker_keys()
            synonyms = self._synonyms(names[0], names) if names else []
            if key in overrides:
                synonyms.insert(0, (key, value, TOPIC_CONFIG))
            entries.append(
                ConfigEntry(
                    name=key,
                    value=value,
                    source=synonyms[0][2] if synonyms else DEFAULT,
                    synonyms=synonyms,
                    type=row.setting.kind,
                    doc=row.setting.help,
                )
            )
        return entries

    def broker(self) -> list[ConfigEntry]:
        """All settings of this broker."""
        if self._broker is None:
            self._broker = [self._broker_entry(item) for item in kafka_items(self._settings)]
        return self._broker

    def _broker_entry(self, item: KafkaItem) -> ConfigEntry:
        synonyms = self._synonyms(item.key, _names_with(item.key))
        return ConfigEntry(
            name=item.key,
            value=item.value,
            source=synonyms[0][2] if synonyms else DEFAULT,
            synonyms=synonyms,
            type=item.type,
            doc=item.doc,
            read_only=not item.dynamic,
        )

    def cluster_wide(self) -> list[ConfigEntry]:
        """What is set for all brokers, and nothing else."""
        layer = self._dynamic.layer(CLUSTER_WIDE)
        return [
            ConfigEntry(
                name=key,
                value=value,
                source=DYNAMIC_DEFAULT,
                synonyms=[(key, value, DYNAMIC_DEFAULT)],
                type=SETTINGS[key].kind,
                doc=SETTINGS[key].help,
            )
            for key, value in layer.items()
        ]

    def _synonyms(self, name: str, names: tuple[str, ...]) -> list[Synonym]:
        found = [(each, layer[each], source) for layer, source in self._layers for each in names if each in layer]
        while found and found[0][0] != name:
            found.pop(0)
        return found


@cache
def _defaults() -> Mapping[str, str]:
    known = {item.key: item.value for item in kafka_items(BrokerSettings()) if item.value is not None}
    foreign = {row.broker_key: row.fixed_default for row in TOPIC_SETTINGS.values() if row.broker_key}
    return known | foreign


@cache
def _names_with(key: str) -> tuple[str, ...]:
    """All names of the setting that `key` is one of, the strongest first; Kafka joins the log's only."""
    for setting in SETTINGS.values():
        names = (setting.key, *(alias.key for alias in setting.aliases))
        if key in names and key.startswith("log."):
            return names
    return (key,)
