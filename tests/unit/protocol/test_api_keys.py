"""Each number of a request is the one that Kafka's schemas have under that name, and stands in one table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace
from headrace.broker.handlers import load
from headrace.protocol import api_keys
from headrace.protocol.messages import api_name

NAMED = {name: value for name, value in vars(api_keys).items() if name.isupper()}
DEFINED = re.compile(r"^(?:[A-Z_]+, )*(%s)(?:, [A-Z_]+)* = -?\d+(?:, -?\d+)*$" % "|".join(NAMED), re.MULTILINE)  # noqa: UP031
CALLED = re.compile(r"\.(?:call|serves|version)\(\d+")


def spelled(name: str) -> str:
    return name.replace("_", "").lower()


@pytest.mark.parametrize("name", NAMED)
def test_a_number_has_the_name_that_kafka_gave_it(name: str) -> None:
    key = NAMED[name]
    assert spelled(str(api_name(key))) == spelled(name)
    served = load(key)
    assert served is None or spelled(served.name) == spelled(name)


def test_no_other_module_writes_such_a_number() -> None:
    source = Path(headrace.__file__).parent
    found = [
        f"{path.relative_to(source)}: {match[0]}"
        for package in ("client", "cli", "testing")
        for path in sorted((source / package).rglob("*.py"))
        for pattern in (DEFINED, CALLED)
        for match in pattern.finditer(path.read_text())
    ]
    assert not found, "take these from protocol/api_keys"


@pytest.mark.parametrize("code", ["CREATE_TOPICS, DELETE_TOPICS = 19, 20", "METADATA = 3"])
def test_a_number_is_seen_where_it_is_written(code: str) -> None:
    assert DEFINED.search(code)
    assert CALLED.search("broker.call(19, body)")
