"""Reads `listeners` and `advertised.listeners`: which one address is served, and which is told to clients.

Headrace serves one plaintext listener. A KRaft controller's listener in the same line belongs to a part that
does not exist here and is passed over; an encrypted one is refused, never served in the clear.
"""

import re
from typing import NamedTuple

from headrace.core.errors import OperatorError
from headrace.core.settings.types import split_list

_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]*):(-?[0-9]+)")
_SECURE = {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}
_EXAMPLE = "PLAINTEXT://127.0.0.1:9092"
WILDCARDS = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    name: str
    host: str
    port: int


def served_listener(where: str, key: str, text: str, *, controllers: str = "", protocols: str = "") -> Listener:
    """The one listener of `text` that clients may use.

    `controllers` is the value of controller.listener.names, `protocols` of listener.security.protocol.map.
    """
    passed_over = {name.upper() for name in split_list(controllers)} | {"CONTROLLER"}
    mapping = {"PLAINTEXT": "PLAINTEXT"} | {protocol: protocol for protocol in _SECURE}
    for pair in split_list(protocols):
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
        if security != "PLAINTEXT":
            raise OperatorError(
                f"{where}: {key}={item}: listener {listener.name} has no known security protocol; "
                f"name it PLAINTEXT, or map it with listener.security.protocol.map={listener.name}:PLAINTEXT"
            )
        found.append(listener)
    if len(found) != 1:
        count = f"{len(found)} listeners for clients" if found else "no listener for clients"
        raise OperatorError(f"{where}: {key}={text} has {count}; one is served, so give one, such as {_EXAMPLE}")
    return found[0]


def _parse(where: str, key: str, item: str) -> Listener:
    match = _LISTENER.fullmatch(item)
    if match is None:
        raise OperatorError(f"{where}: {key}={item} is not NAME://host:port; write it like {_EXAMPLE}")
    port = int(match[3])
    if not 0 <= port <= 65535:
        raise OperatorError(f"{where}: {key}={item}: port {port} is outside 0 to 65535; give a port in that range")
    return Listener(match[1].upper(), match[2].strip("[]"), port)


def format_listener(host: str, port: int) -> str:
    return f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}"
