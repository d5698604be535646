"""Reads `listeners` and `advertised.listeners`: which addresses are served, and which are told to clients.

Each listener has a name, and its clients are told addresses of that name only. A KRaft controller's listener in the
same line belongs to a part that does not exist here and is passed over; an encrypted one is refused, never served in
the clear.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.core.errors import OperatorError
from headrace.core.settings.types import split_list

_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]*):(-?[0-9]+)")
_SECURE = {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}
_EXAMPLE = "PLAINTEXT://127.0.0.1:9092"
PLAINTEXT = "PLAINTEXT"  # a security protocol, and the name of a listener that has no other
PROTOCOLS = f"{PLAINTEXT}:{PLAINTEXT},SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
WILDCARDS = ("", "0.0.0.0", "::")


class ListenerAddress(NamedTuple):
    name: str
    host: str
    port: int


def client_listeners(
    where: str, key: str, text: str, *, controllers: str = "", protocols: str = ""
) -> tuple[ListenerAddress, ...]:
    """The listeners of `text` that clients may use; at least one.

    `controllers` is the value of controller.listener.names, `protocols` of listener.security.protocol.map.
    """
    passed_over = {name.upper() for name in split_list(controllers)} | {"CONTROLLER"}
    mapping = {}
    for pair in split_list(f"{PROTOCOLS},{protocols}"):
        name, _, protocol = pair.partition(":")
        mapping[name.strip().upper()] = protocol.strip().upper()

    found = []
    for item in split_list(text):
        listener = _parse(where, key, item)
        if listener.name in passed_over:
            continue
        security = mapping.get(listener.name)
        if security in _SECURE:
            raise OperatorError(
                f"{where}: {key}={item}: {security} is not supported; use {_EXAMPLE} on a trusted network"
            )
        if security != PLAINTEXT:
            raise OperatorError(
                f"{where}: {key}={item}: listener {listener.name} has no known security protocol; "
                f"name it PLAINTEXT, or map it with listener.security.protocol.map={listener.name}:PLAINTEXT"
            )
        found.append(listener)
    if not found:
        raise OperatorError(f"{where}: {key}={text} has no listener for clients; give at least one, such as {_EXAMPLE}")
    return tuple(found)


def check_listeners(
    served: Sequence[ListenerAddress], advertised: Sequence[ListenerAddress], inter_broker: str
) -> None:
    """What Kafka checks of them together."""
    _check_names("listeners", served)
    _check_names("advertised.listeners", advertised)
    names = [each.name for each in served]
    by_port: dict[int, list[ListenerAddress]] = {}
    for each in served:
        by_port.setdefault(each.port, []).append(each)
    for port, same in by_port.items():
        # An IPv4 and an IPv6 address may share a port, since they are two sockets all the same.
        is_pair = len(same) == 2 and (":" in same[0].host) != (":" in same[1].host)
        if port and len(same) > 1 and not is_pair:
            raise OperatorError(
                f"listeners={format_listeners(served)}: port {port} is given {len(same)} times; "
                "give each listener a port of its own, or 0 for a free one"
            )
    unknown = [each.name for each in advertised if each.name not in names]
    if unknown:
        raise OperatorError(
            f"advertised.listeners={format_listeners(advertised)}: {unknown[0]} is not in listeners "
            f"({', '.join(names)}); advertise only what is listened on"
        )
    if inter_broker and inter_broker not in names:
        raise OperatorError(
            f"inter.broker.listener.name={inter_broker} is not in listeners; give one of {', '.join(names)}"
        )


def _check_names(key: str, listeners: Sequence[ListenerAddress]) -> None:
    names = [each.name for each in listeners]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise OperatorError(
            f"{key}={format_listeners(listeners)}: {twice} is given {names.count(twice)} times; "
            "give each listener a name of its own"
        )


def _parse(where: str, key: str, item: str) -> ListenerAddress:
    match = _LISTENER.fullmatch(item)
    if match is None:
        raise OperatorError(f"{where}: {key}={item} is not NAME://host:port; write it like {_EXAMPLE}")
    port = int(match[3])
    if not 0 <= port <= 65535:
        raise OperatorError(f"{where}: {key}={item}: port {port} is outside 0 to 65535; give a port in that range")
    return ListenerAddress(match[1].upper(), match[2].strip("[]"), port)


def format_listeners(listeners: Iterable[ListenerAddress]) -> str:
    return ",".join(_format(each) for each in listeners)


def _format(listener: ListenerAddress) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"
