"""Quotas of users, clients and addresses, and users' SCRAM credentials, for `kafka-configs.sh`."""

import hashlib
import os
import re
from decimal import Decimal
from typing import Any

from headrace.cli.kafka.configs import CLIENTS, IPS, USERS
from headrace.cli.kafka.tool import ToolError
from headrace.client.cluster import ClusterClient
from headrace.client.errors import KafkaError, check
from headrace.protocol.api_keys import (
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from headrace.protocol.error_codes import RESOURCE_NOT_FOUND

_ENTITY = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}
_TITLE = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_NAMED, _DEFAULT, _ANY = 0, 1, 2  # how a component of a question matches
_CLIENT_QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
_IP_QUOTAS = ("connection_creation_rate",)
_SCRAM = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_ITERATIONS, _ITERATIONS_MIN, _SALT_BYTES = 4096, 4096, 24
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")


def describe(cluster: ClusterClient, types: list[str], names: list[str]) -> None:
    for entity, values in _found(cluster, types, names):
        parts = []
        for kind, title in _TITLE.items():
            if kind in entity:
                parts.append(f"the default {title}" if entity[kind] is None else f"{title} '{entity[kind]}'")
        shown = ", ".join(f"{key}={java_double(value)}" for key, value in values.items())
        print(f"Quota configs for {', '.join(parts)} are {shown}")
    if USERS in types and CLIENTS not in types and "" not in names:
        _describe_scram(cluster, names)


def _found(
    cluster: ClusterClient, types: list[str], names: list[str]
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    components = []
    for at, kind in enumerate(types):
        name = names[at] if at < len(names) else None
        how = _ANY if name is None else _NAMED if name else _DEFAULT
        components.append({"entity_type": _ENTITY[kind], "match_type": how, "match": name or None})
    answer = cluster.any.call(DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": True})
    check(answer.error_code, answer.error_message)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def _describe_scram(cluster: ClusterClient, users: list[str]) -> None:
    asked = [{"name": user} for user in users] or None
    answer = cluster.controller().call(DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": asked})
    check(answer.error_code, answer.error_message)
    titles = {number: name for name, (number, _) in _SCRAM.items()}
    for each in answer.results:
        if each.error_code == RESOURCE_NOT_FOUND:
            continue
        if each.error_code:
            fault = KafkaError(each.error_code, each.error_message)
            name = fault.java.partition(":")[0].rpartition(".")[2]
            print(f"Error retrieving SCRAM credential configs for user-principal '{each.user}': {name}: {fault}")
            continue
        held = ", ".join(f"{titles[info.mechanism]}=iterations={info.iterations}" for info in each.credential_infos)
        print(f"SCRAM credential configs for user-principal '{each.user}' are {held}")


def alter(
    cluster: ClusterClient, types: list[str], names: list[str], added: dict[str, str], removed: list[str]
) -> None:
    allowed = _IP_QUOTAS if IPS in types else _CLIENT_QUOTAS
    scram = [key for key in (*added, *removed) if key in _SCRAM]
    others = [key for key in (*added, *removed) if key not in allowed and key not in scram]
    if IPS in types and (others or scram):
        raise ToolError(
            f"Only connection quota configs can be added for 'ips' using --bootstrap-server. Unexpected config names: "
            f"{','.join(others + scram)}"
        )
    if CLIENTS in types and (others or scram):
        raise ToolError(
            "Only quota configs can be added for 'clients' using --bootstrap-server. Unexpected config names: "
            f"{','.join(others + scram)}"
        )
    if others:
        raise ToolError(
            "Only quota and SCRAM credential configs can be added for 'users' using --bootstrap-server. Unexpected "
            f"config names: {','.join(others)}"
        )
    if not scram:
        _alter_quotas(cluster, types, names, added, removed)
        return
    if "" in names:
        raise ToolError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
            "--bootstrap-server."
        )
    if len(scram) < len(added) + len(removed):
        raise ToolError(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using --bootstrap-server."
        )
    _alter_scram(cluster, names[0], added, removed)


def _alter_quotas(
    cluster: ClusterClient, types: list[str], names: list[str], added: dict[str, str], removed: list[str]
) -> None:
    held = next((values for _, values in _found(cluster, types, names)), {})
    unknown = [key for key in removed if key not in held]
    if unknown:
        raise ToolError(f"Invalid config(s): {','.join(unknown)}")
    changes: list[dict[str, Any]] = [{"key": key, "value": 0.0, "remove": True} for key in removed]
    for key, text in added.items():
        try:
            changes.append({"key": key, "value": float(text), "remove": False})
        except ValueError:
            raise ToolError(f"Cannot parse quota configuration value for {key}: {text}") from None
    entity = [
        {"entity_type": _ENTITY[kind], "entity_name": name or None} for kind, name in zip(types, names, strict=True)
    ]
    body = {"entries": [{"entity": entity, "ops": changes}], "validate_only": False}
    for entry in cluster.controller().call(ALTER_CLIENT_QUOTAS, body).entries:
        check(entry.error_code, entry.error_message)


def _alter_scram(cluster: ClusterClient, user: str, added: dict[str, str], removed: list[str]) -> None:
    body = {
        "deletions": [{"name": user, "mechanism": _SCRAM[key][0]} for key in removed],
        "upsertions": [_credential(user, key, text) for key, text in added.items()],
    }
    for result in cluster.controller().call(ALTER_USER_SCRAM_CREDENTIALS, body).results:
        check(result.error_code, result.error_message)


def _credential(user: str, mechanism: str, text: str) -> dict[str, object]:
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise ToolError(f"Invalid credential property {mechanism}={text}")
    iterations = int(match[1]) if match[1] not in (None, "", "-1") else _ITERATIONS
    if iterations < _ITERATIONS_MIN:
        raise ToolError(f"Iterations {iterations} is less than the minimum {_ITERATIONS_MIN} required for {mechanism}")
    number, digest = _SCRAM[mechanism]
    salt = os.urandom(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(digest, match[2].encode(), salt, iterations)
    return {"name": user, "mechanism": number, "iterations": iterations, "salt": salt, "salted_password": salted}


def java_double(value: float) -> str:
    """A number as Java prints it: 1048576.0, and 1.0E7 from ten million on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    negative, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    if not isinstance(exponent, int):  # infinite, or no number
        return str(value)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if negative else ''}{digits[0]}.{rest}E{len(digits) + exponent - 1}"
