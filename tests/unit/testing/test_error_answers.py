"""Every request that a broker serves, in every version, can be refused with any error; the answer is a valid one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headrace.broker.handlers import TABLE
from headrace.protocol import fetch, produce
from headrace.protocol.error_codes import FETCH_SESSION_ID_NOT_FOUND, NOT_COORDINATOR, NOT_LEADER_OR_FOLLOWER
from headrace.protocol.message_fields import Default, SchemaField, schema_fields
from headrace.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    known_versions,
    message_fields,
    request_is_flexible,
)
from headrace.protocol.wire import skip_tags
from headrace.testing.error_answers import error_answer

SERVED = {served.key: (served.low, served.high) for served in TABLE}
SERVED |= {produce.KEY: (produce.LOW, produce.HIGH), fetch.KEY: (fetch.LOW, fetch.HIGH)}
VERSIONS = [(key, version) for key, (low, high) in sorted(SERVED.items()) for version in range(low, high + 1)]
NO_ERROR = frozenset({(18, version) for version in range(5)})


def filled(fields: list[SchemaField]) -> dict[str, Any]:
    """A body with one item in every list and a value in every field."""
    body: dict[str, Any] = {}
    for field in fields:
        if field.kafka_type == "entity":
            inner = filled(list(schema_fields(field.python_type)))
            body[field.name] = [inner] if field.array else inner
            continue
        value: Any = {"string": "a-name", "uuid": UUID(int=7), "bytes": b"x", "bool": False, "records": None}.get(
            field.kafka_type, 5
        )
        if field.tag is not None and field.default is not Default.ABSENT and not field.array:
            continue
        body[field.name] = [value] if field.array else value
    return body


def request_of(key: int, version: int) -> Any:
    data = encode_request(key, version, 1, "c", filled(message_fields(key, version, "request")))
    at = 10 + 1
    if request_is_flexible(key, version):
        at = skip_tags(memoryview(data), at)
    return decode_request(key, version, data, at)


def codes(answer: Any) -> list[int]:
    """Every error code in an answer, whatever depth."""
    found = []
    for name in getattr(answer, "__dataclass_fields__", None) or vars(answer):
        value = getattr(answer, name)
        if name in ("error_code", "partition_error_code"):
            found.append(int(value))
        elif isinstance(value, tuple | list):
            found += [code for item in value if not isinstance(item, str | int | UUID) for code in codes(item)]
    return found


def refused(key: int, version: int, code: int) -> Any:
    body = error_answer(key, version, request_of(key, version), code)
    return decode_response(key, version, encode_response(key, version, 1, body))[1]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_request_can_be_refused(key: int, version: int) -> None:
    if known_versions(key) is None:
        pytest.skip("kio has no schema of it")
    assert NOT_COORDINATOR in codes(refused(key, version, NOT_COORDINATOR))


def test_a_refused_produce_names_its_partitions() -> None:
    (topic,) = refused(produce.KEY, 9, NOT_LEADER_OR_FOLLOWER).responses
    (partition,) = topic.partition_responses
    assert (topic.name, partition.index, int(partition.error_code)) == ("a-name", 5, NOT_LEADER_OR_FOLLOWER)


def test_a_fetch_is_refused_by_partition_unless_the_session_is_meant() -> None:
    answer = refused(fetch.KEY, 12, NOT_LEADER_OR_FOLLOWER)
    assert int(answer.error_code) == 0
    (topic,) = answer.responses
    assert (topic.topic, [(p.partition_index, int(p.error_code)) for p in topic.partitions]) == (
        "a-name",
        [(5, NOT_LEADER_OR_FOLLOWER)],
    )
    assert int(refused(fetch.KEY, 12, FETCH_SESSION_ID_NOT_FOUND).error_code) == FETCH_SESSION_ID_NOT_FOUND


def test_bare_names_in_a_request_come_back_as_names() -> None:
    (coordinator,) = refused(10, 4, NOT_COORDINATOR).coordinators
    assert (coordinator.key, int(coordinator.error_code)) == ("a-name", NOT_COORDINATOR)
    (group,) = refused(42, 2, NOT_COORDINATOR).results
    assert (group.group_id, int(group.error_code)) == ("a-name", NOT_COORDINATOR)
