"""Broker settings that change while the broker runs, and survive a restart.

Two layers lie over the static settings: those of all brokers (Kafka's resource with an empty name) and,
stronger, those of this one. Only what Kafka lets change and what has a meaning here is taken; the rest is
refused, never kept without effect. `effective` is what counts; it is replaced as a whole, never changed.
"""

import dataclasses
from collections.abc import Callable, Mapping

from headrace.broker.catalog import CLUSTER_WIDE, THIS_BROKER, Catalog
from headrace.broker.config_values import parse_config
from headrace.core.errors import OperatorError, PeerError, StorageError
from headrace.core.settings.broker import BrokerSettings
from headrace.core.settings.types import Kind, Setting, setting_of
from headrace.protocol.error_codes import INVALID_REQUEST, KAFKA_STORAGE_ERROR

SETTINGS: Mapping[str, Setting] = {
    described.key: described
    for field in dataclasses.fields(BrokerSettings)
    if (described := setting_of(field)) is not None
}


class DynamicSettings:
    def __init__(self, static: BrokerSettings, catalog: Catalog) -> None:
        self.static = static
        self._catalog = catalog
        self.view: object = None  # how DescribeConfigs shows it all, kept until something changes
        self.on_change: list[Callable[[BrokerSettings], None]] = []
        self.effective = self._combined(self.layer(CLUSTER_WIDE), self.layer(THIS_BROKER))

    def layer(self, name: str) -> dict[str, str]:
        return self._catalog.broker_settings[name]

    def replace(self, layer: str, entries: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Puts these entries in place of all that the layer holds. `PeerError` in Kafka's words."""
        before = self.layer(layer)
        self.check({key: text for key, text in entries.items() if before.get(key) != text})
        other = self.layer(THIS_BROKER if layer == CLUSTER_WIDE else CLUSTER_WIDE)
        try:
            lower, upper = (entries, other) if layer == CLUSTER_WIDE else (other, entries)
            combined = self._combined(lower, upper)
        except OperatorError as error:
            raise PeerError(INVALID_REQUEST, str(error)) from None
        if validate_only or entries == before:
            return
        try:
            self._catalog.put_broker_settings(layer, entries)
        except StorageError as error:
            raise PeerError(KAFKA_STORAGE_ERROR, str(error)) from error
        self.effective = combined
        self.view = None
        for changed in self.on_change:
            changed(combined)

    def check(self, entries: Mapping[str, str]) -> None:
        refused = [key for key in entries if key not in SETTINGS or not SETTINGS[key].dynamic]
        if refused:
            why = f"Cannot update these configs dynamically: [{', '.join(refused)}]"
            raise PeerError(INVALID_REQUEST, why)
        for key, text in entries.items():
            try:
                parse_config(SETTINGS[key], text)
            except ValueError as error:
                raise PeerError(INVALID_REQUEST, str(error)) from None

    def _combined(self, lower: Mapping[str, str], upper: Mapping[str, str]) -> BrokerSettings:
        changes = {**lower, **upper}
        return self.static.altered(changes, "dynamic")[0] if changes else self.static


def is_list(key: str) -> bool:
    return key in SETTINGS and SETTINGS[key].kind is Kind.LIST
