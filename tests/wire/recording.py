"""From what the recorded brokers wrote to docs/reference/compatibility.json, from which the published table is made.

Nothing is written unless every test passed and every version that is served was asked for: a table of half a run
would say that a client does not use what it does.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# The name that a client tells the broker, and what people call it; in the order of the table's columns.
TITLES = {
    "apache-kafka-java": "Java client, Streams, tools",
    "confluent-kafka-python": "confluent-kafka",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "bare": "bare requests",
}


class Use(NamedTuple):
    client: str
    client_version: str
    api: str
    version: int


class IncompleteError(Exception):
    """The run does not show what the table says."""


def read(lines: Iterable[str]) -> set[Use]:
    found = set()
    for line in lines:
        client, client_version, api, version = line.rstrip("\n").split("\t")
        found.add(Use(client, client_version, api, int(version)))
    return found


def document(uses: set[Use], served: Mapping[str, range]) -> dict[str, Any]:
    """The table, client by client. `served` are the versions of each API that the broker takes."""
    by_client: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    versions: dict[str, set[str]] = defaultdict(set)
    for use in uses:
        if use.client not in TITLES:
            raise IncompleteError(f"{use.client!r} is no client that has a title; give it one in recording.py")
        by_client[use.client][use.api].add(use.version)
        if use.client_version:
            versions[use.client].add(use.client_version)
    _check_whole(by_client, served)
    return {
        "apis": [{"name": name, "versions": list(each)} for name, each in served.items()],
        "clients": [
            {
                "title": title,
                "versions": sorted(versions[client]),
                "apis": {name: sorted(by_client[client][name]) for name in served if by_client[client].get(name)},
            }
            for client, title in TITLES.items()
        ],
    }


def _check_whole(by_client: Mapping[str, Mapping[str, set[int]]], served: Mapping[str, range]) -> None:
    if absent := [client for client in TITLES if client not in by_client]:
        raise IncompleteError(f"no request of {', '.join(absent)}: run all of tests/wire, with Java and Maven at hand")
    for name, versions in served.items():
        asked = set().union(*(apis.get(name, set()) for apis in by_client.values()))
        if missing := sorted(set(versions) - asked):
            raise IncompleteError(f"{name}: versions {missing} are served, and no test asked for them")


def write(record: Path, file: Path, served: Mapping[str, range]) -> None:
    uses = read(record.read_text(encoding="utf-8").splitlines()) if record.exists() else set()
    made = document(uses, served)
    file.write_text(compact(made), encoding="utf-8")


def compact(made: dict[str, Any]) -> str:
    """JSON with an API a line, so that a change can be read."""
    lines = ['{"apis": [']
    lines.append(",\n".join(f"  {json.dumps(api)}" for api in made["apis"]))
    lines.append('], "clients": [')
    clients = []
    for client in made["clients"]:
        apis = ",\n".join(f"    {json.dumps(name)}: {json.dumps(used)}" for name, used in client["apis"].items())
        head = f'  {{"title": {json.dumps(client["title"])}, "versions": {json.dumps(client["versions"])}, "apis": {{'
        clients.append(f"{head}\n{apis}\n  }}}}")
    lines.append(",\n".join(clients))
    lines.append("]}")
    return "\n".join(lines) + "\n"
