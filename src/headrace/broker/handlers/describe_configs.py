"""DescribeConfigs: settings of topics, of this broker and of its loggers.

v1 adds synonyms and sources, v3 types and documentation, v4 is flexible. A list of keys narrows the
answer; an empty one does not. The broker resource with an empty name shows what is set for all brokers. A resource that
is named twice is answered twice, a number of times: a short request must not ask for an answer without end.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import loggers
from headrace.broker.api import MALFORMED, Api, Request
from headrace.broker.config_view import BROKER_LOGGER as LOGGER_SOURCE
from headrace.broker.config_view import ConfigEntry, ConfigView
from headrace.broker.handlers import config_resources
from headrace.broker.steps import FEW, Steps, stepped
from headrace.broker.topic_names import check_name
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_REQUEST, NONE, UNKNOWN_TOPIC_OR_PARTITION
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import ConfigParts

REPEATS_MAX: Final = 100


def handle(parts: ConfigParts, request: Request) -> Body | Steps:
    return stepped(_answer(parts, request), FEW * len(request.body.resources))


def _answer(parts: ConfigParts, request: Request) -> Generator[None, None, Body]:
    body = request.body
    documentation = bool(getattr(body, "include_documentation", False))
    view = ConfigView.of(parts.dynamic_settings)
    results = []
    seen: set[tuple[int, str, tuple[str, ...]]] = set()
    repeats = 0
    for resource in body.resources:
        yield
        keys = resource.configuration_keys or ()
        asked = (resource.resource_type, resource.resource_name, keys[: config_resources.CONFIGS_MAX + 1])
        if asked in seen:
            repeats += 1
            if repeats > REPEATS_MAX:
                continue
        seen.add(asked)
        result = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            config_resources.check_rights(parts.rights, request.session, resource, changes=False)
            config_resources.check_count(keys)
            entries = _entries(parts, view, resource)
            wanted = set(keys)
            shown = [entry for entry in entries if not wanted or entry.name in wanted]
            configs = [_config(entry, body.include_synonyms, documentation) for entry in shown]
            results.append(result | {"error_code": NONE, "error_message": "", "configs": configs})
        except PeerError as error:
            results.append(result | {"error_code": error.code, "error_message": error.message, "configs": []})
    return {"results": results}


def _entries(parts: ConfigParts, view: ConfigView, resource: Any) -> list[ConfigEntry]:
    name = resource.resource_name
    node_id = parts.settings.node_id
    match resource.resource_type:
        case config_resources.TOPIC:
            check_name(name)
            topic = parts.topics.get(name)
            if topic is None:
                raise PeerError(UNKNOWN_TOPIC_OR_PARTITION, "")
            return view.topic(topic.overrides)
        case config_resources.BROKER:
            if not name:
                return view.cluster_wide()
            _check_broker(name, node_id, f"{node_id} or empty string,")
            return view.broker()
        case config_resources.BROKER_LOGGER:
            if not name:
                raise PeerError(INVALID_REQUEST, "Broker id must not be empty")
            _check_broker(name, node_id, str(node_id))
            return _loggers()
        case _:
            raise PeerError(INVALID_REQUEST, MALFORMED)


def _check_broker(name: str, node_id: int, expected: str) -> None:
    number = config_resources.node_number(name)
    if number is None:
        raise PeerError(INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if number != node_id:
        raise PeerError(INVALID_REQUEST, f"Unexpected broker id, expected {expected} but received {name}")


def _loggers() -> list[ConfigEntry]:
    return [
        ConfigEntry(name=name, value=level, source=LOGGER_SOURCE, synonyms=[], type=0, doc="")
        for name, level in loggers.levels().items()
    ]


def _config(entry: ConfigEntry, synonyms: bool, documentation: bool) -> Mapping[str, object]:
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": False,
        "synonyms": [
            {"name": name, "value": value, "source": source} for name, value, source in entry.synonyms if synonyms
        ],
        "config_type": entry.type,
        "documentation": entry.doc if documentation else None,
    }


API = Api(key=32, name="DescribeConfigs", low=1, high=4, handle=handle)
