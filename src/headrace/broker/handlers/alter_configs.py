"""AlterConfigs: what a resource sets becomes exactly what is given here; what is left out falls to its
default.

v2 is flexible. Kafka keeps it for old clients; IncrementalAlterConfigs is the one to use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Request
from headrace.broker.handlers.config_resources import (
    BROKER,
    TOPIC,
    broker_layer,
    change_all,
)
from headrace.broker.steps import Steps, stepped
from headrace.broker.topic_controller import Waiting
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_REQUEST
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import ConfigParts


def handle(parts: ConfigParts, request: Request) -> Body | Steps:
    def replace(resource: Any) -> Waiting:
        return _replace(parts, resource, request.body.validate_only)

    return stepped(change_all(parts.rights, request, replace), len(request.body.resources), must_end=True)


def _replace(parts: ConfigParts, resource: Any, validate_only: bool) -> Waiting:
    name = resource.resource_name
    configs = {config.name: config.value for config in resource.configs}
    if resource.resource_type == TOPIC:
        if not name:
            raise PeerError(INVALID_REQUEST, "Default topic resources are not allowed.")
        yield from parts.controller.alter_in_steps(name, configs, validate_only=validate_only)
    elif resource.resource_type == BROKER:
        layer = broker_layer(name, parts.settings.node_id)
        parts.dynamic_settings.replace(layer, configs, validate_only=validate_only)
    else:
        raise PeerError(INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


API = Api(key=33, name="AlterConfigs", low=0, high=2, handle=handle)
