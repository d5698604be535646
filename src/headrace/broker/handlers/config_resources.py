"""The resources whose settings can be read and changed: topics, brokers and loggers, by Kafka's numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.api import Request
from headrace.broker.catalog import CLUSTER_WIDE, THIS_BROKER
from headrace.broker.rights import (
    ALTER_BROKER_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_BROKER_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    Rights,
)
from headrace.broker.steps import Pause, tally
from headrace.broker.topic_controller import Waiting
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_REQUEST
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
CONFIGS_MAX: Final = 1_000  # settings of one resource in a request
NUMBER_CHARACTERS_MAX: Final = 100  # leading zeros and all


def broker_layer(name: str, node_id: int) -> str:
    """Which layer of dynamic settings a change of a broker resource is for."""
    if not name:
        return CLUSTER_WIDE
    check_node(name, node_id, "broker")
    return THIS_BROKER


def node_number(name: str) -> int | None:
    """None if it is not a number of 32 bits. Python refuses to read one of thousands of digits."""
    if not name.removeprefix("-").isdecimal() or len(name) > NUMBER_CHARACTERS_MAX:
        return None
    number = int(name)
    return number if -(1 << 31) <= number < 1 << 31 else None


def check_node(name: str, node_id: int, noun: str) -> None:
    number = node_number(name)
    if number is None:
        raise PeerError(INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if number != node_id:
        if noun == "broker":
            message = f"Unexpected broker id, expected {node_id}, but received {name}"
        else:
            message = f"Unexpected node id. Expected {node_id}, but received {name}"
        raise PeerError(INVALID_REQUEST, message)


def check_change(resource: Any, counts: Mapping[tuple[int, str], int], nullable: Iterable[str] = ()) -> None:
    """What is wrong with a change before anyone looks at what it changes."""
    if counts[resource.resource_type, resource.resource_name] > 1:
        raise PeerError(INVALID_REQUEST, "Each resource must appear at most once.")
    check_count(resource.configs)
    keys = Counter(config.name for config in resource.configs)
    if any(count > 1 for count in keys.values()):
        raise PeerError(INVALID_REQUEST, "Error due to duplicate config keys")
    allowed = set(nullable)
    nulls = [config.name for config in resource.configs if config.value is None and config.name not in allowed]
    if nulls:
        raise PeerError(INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")


def check_rights(rights: Rights, session: ClientSession, resource: Any, *, changes: bool = True) -> None:
    """Who may change the settings of this resource, or look at them."""
    if resource.resource_type == TOPIC:
        rights.check(session, ALTER_TOPIC_CONFIGS if changes else DESCRIBE_TOPIC_CONFIGS, resource.resource_name)
    elif resource.resource_type in (BROKER, BROKER_LOGGER):
        rights.check(session, ALTER_BROKER_CONFIGS if changes else DESCRIBE_BROKER_CONFIGS)


def check_count(configs: Sized) -> None:
    """They are looked at at once, and there are not nearly as many settings."""
    if len(configs) > CONFIGS_MAX:
        why = f"{len(configs)} settings of one resource; at most {CONFIGS_MAX} are taken."
        raise PeerError(INVALID_REQUEST, why)


def count_resources(resources: Iterable[Any]) -> Generator[None, None, Mapping[tuple[int, str], int]]:
    return (yield from tally((resource.resource_type, resource.resource_name) for resource in resources))


def change_all(
    rights: Rights,
    request: Request,
    change: Callable[[Any], Waiting],
    nullable: Callable[[Any], Iterable[str]] = lambda _: (),
) -> Generator[Pause | None, None, Body]:
    """Each resource of the request as a whole or not at all. `nullable`: the settings of one that need no value."""
    resources = request.body.resources
    counts = yield from count_resources(resources)
    responses = []
    for resource in resources:
        try:
            check_change(resource, counts, nullable(resource))
            check_rights(rights, request.session, resource)
            yield from change(resource)
            responses.append(answer(resource, None))
        except PeerError as error:
            responses.append(answer(resource, error))
        yield None
    return {"responses": responses}


def answer(resource: Any, error: PeerError | None) -> Mapping[str, object]:
    return {
        "error_code": 0 if error is None else error.code,
        "error_message": None if error is None else error.message or None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
