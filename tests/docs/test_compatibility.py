"""The table of clients and APIs is what the wire tests ran, on the broker that this is."""

from __future__ import annotations

import json
import sys

import pytest
from blocks import ROOT

sys.path.insert(1, str(ROOT / "tests" / "wire"))

from recording import TITLES, IncompleteError, Use, compact, document, read
from recording_broker import served_by_name

RECORDED = ROOT / "docs" / "reference" / "compatibility.json"
SERVED = {"Produce": range(3, 5), "Fetch": range(4, 5)}
WHOLE = {Use(client, "1.0", api, version) for client in TITLES for api, each in SERVED.items() for version in each}


def test_what_was_recorded_is_what_is_served_now() -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    served = [{"name": name, "versions": list(versions)} for name, versions in served_by_name().items()]
    assert recorded["apis"] == served, "APIs or versions have changed; run `make compatibility`"


def test_every_version_that_is_served_was_asked_for_by_some_client() -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    for api in recorded["apis"]:
        asked = {version for client in recorded["clients"] for version in client["apis"].get(api["name"], [])}
        assert asked == set(api["versions"]), api["name"]


def test_the_lines_of_the_brokers_become_a_column_for_each_client() -> None:
    uses = {use for use in WHOLE if use != Use("aiokafka", "1.0", "Produce", 4)}
    made = document(uses, SERVED)
    assert [client["title"] for client in made["clients"]] == list(TITLES.values())
    aiokafka = next(client for client in made["clients"] if client["title"] == "aiokafka")
    assert aiokafka == {"title": "aiokafka", "versions": ["1.0"], "apis": {"Produce": [3], "Fetch": [4]}}
    assert json.loads(compact(made)) == made


def test_a_run_without_one_of_the_clients_is_refused() -> None:
    with pytest.raises(IncompleteError, match="no request of apache-kafka-java"):
        document({use for use in WHOLE if use.client != "apache-kafka-java"}, SERVED)


def test_a_client_that_nobody_knows_is_refused() -> None:
    with pytest.raises(IncompleteError, match="'franz-go' is no client that has a title"):
        document({*WHOLE, Use("franz-go", "1.0", "Fetch", 4)}, SERVED)


def test_a_version_that_no_test_asked_for_is_refused() -> None:
    with pytest.raises(IncompleteError, match=r"Produce: versions \[4\] are served, and no test asked for them"):
        document({use for use in WHOLE if (use.api, use.version) != ("Produce", 4)}, SERVED)


def test_a_line_is_a_client_its_version_an_api_and_a_version() -> None:
    assert read(["kafka-python\t3.0\tFetch\t4\n", "bare\t\tFetch\t4\n"]) == {
        Use("kafka-python", "3.0", "Fetch", 4),
        Use("bare", "", "Fetch", 4),
    }
