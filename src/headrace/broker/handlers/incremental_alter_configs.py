"""IncrementalAlterConfigs: single settings of a topic, a broker or its loggers are set, removed or, where
they are lists, added to and taken from.

v1 is flexible. A resource changes as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.broker import loggers
from headrace.broker.api import Api, Request
from headrace.broker.dynamic_settings import is_list
from headrace.broker.handlers.config_resources import (
    BROKER,
    BROKER_LOGGER,
    TOPIC,
    broker_layer,
    change_all,
    check_node,
)
from headrace.broker.steps import Steps, stepped
from headrace.broker.topic_config import TOPIC_SETTINGS
from headrace.broker.topic_controller import Waiting
from headrace.core.errors import PeerError
from headrace.core.settings.broker import kafka_items
from headrace.core.settings.types import Kind
from headrace.protocol.error_codes import INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import ConfigParts

SET, DELETE, APPEND, SUBTRACT = range(4)
NAMES = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}
_NO_TOPIC_LIST = "Can't {VERB} to key {key} because its type is not LIST."
_NO_BROKER_LIST = "Config value {verb} is not allowed for config key: {key}"


def handle(parts: ConfigParts, request: Request) -> Body | Steps:
    def alter(resource: Any) -> Waiting:
        return _alter(parts, resource, request.body.validate_only)

    body = change_all(parts.rights, request, alter, nullable=_removed)
    return stepped(body, len(request.body.resources), must_end=True)


def _removed(resource: Any) -> Iterator[str]:
    return (config.name for config in resource.configs if config.config_operation == DELETE)


def _alter(parts: ConfigParts, resource: Any, validate_only: bool) -> Waiting:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        if not name:
            raise PeerError(INVALID_REQUEST, "Default topic resources are not allowed.")
        topic = parts.topics.get(name)
        if topic is None:
            raise PeerError(UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        changed = dict(topic.overrides)
        for config in resource.configs:
            row = TOPIC_SETTINGS.get(config.name)
            in_force = "" if row is None else row.text(topic.overrides, parts.settings)
            splits = row is not None and row.setting.kind is Kind.LIST
            _apply(changed, config, in_force, "" if splits else _NO_TOPIC_LIST)
        yield from parts.controller.alter_in_steps(name, changed, validate_only=validate_only)
    elif resource.resource_type == BROKER:
        layer = broker_layer(name, parts.settings.node_id)
        changed = dict(parts.dynamic_settings.layer(layer))
        in_force_by_key = {item.key: item.value or "" for item in kafka_items(parts.settings)}
        for config in resource.configs:
            in_force = changed.get(config.name) or in_force_by_key.get(config.name, "")
            _apply(changed, config, in_force, "" if is_list(config.name) else _NO_BROKER_LIST)
        parts.dynamic_settings.replace(layer, changed, validate_only=validate_only)
    elif resource.resource_type == BROKER_LOGGER:
        check_node(name, parts.settings.node_id, "node")
        _set_levels(resource.configs, validate_only)
    else:
        raise PeerError(INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _apply(changed: dict[str, str], config: Any, in_force: str, no_list: str) -> None:
    """`no_list` is what to say where the setting is not a list and so cannot grow or shrink."""
    key, operation = config.name, config.config_operation
    if operation == SET:
        changed[key] = config.value
    elif operation == DELETE:
        changed.pop(key, None)
    elif operation not in NAMES:
        raise PeerError(INVALID_REQUEST, f"Unknown operation {operation} for {key}; 0 to 3 are known")
    elif no_list:
        verb = NAMES[operation]
        why = no_list.format(VERB=verb, verb=verb.lower(), key=key)
        raise PeerError(INVALID_CONFIG, why)
    else:
        parts = [part for part in in_force.split(",") if part]
        given = dict.fromkeys(config.value.split(","))  # each looked up at once: both lists may be very long
        if operation == APPEND:
            known = set(parts)
            parts += [part for part in given if part not in known]
        else:
            parts = [part for part in parts if part not in given]
        changed[key] = ",".join(parts)


def _set_levels(configs: Any, validate_only: bool) -> None:
    for config in configs:
        if config.config_operation == SET:
            loggers.check(config.name, config.value)
        elif config.config_operation != DELETE:
            operation = NAMES.get(config.config_operation, "UNKNOWN")
            why = f"{operation} operation is not allowed for the BROKER_LOGGER resource"
            raise PeerError(INVALID_REQUEST, why)
        elif config.name == loggers.ROOT:
            why = "Removing the log level of the root logger is not allowed"
            raise PeerError(INVALID_REQUEST, why)
    for config in () if validate_only else configs:
        if config.config_operation == SET:
            loggers.set_level(config.name, config.value)
        else:
            loggers.unset_level(config.name)


API = Api(key=44, name="IncrementalAlterConfigs", low=0, high=1, handle=handle)
