"""The client's side of `protocol.messages`: what it writes a broker reads, and the other way round."""

from __future__ import annotations

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from headrace.protocol import messages

METADATA, API_VERSIONS, OFFSET_FETCH = 3, 18, 9


@pytest.mark.parametrize("version", range(14))
def test_a_request_is_what_kio_reads(version: int) -> None:
    body = {
        "topics": [{"name": "t", "topic_id": None}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": True,
    }
    data = messages.encode_request(METADATA, version, 7, "me", body)
    schema = load_request_schema(METADATA, version)
    header, at = entity_reader(schema.__header_schema__)(data, 0)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (METADATA, version, 7)
    assert header.client_id == "me"
    request, size = entity_reader(schema)(data, at)
    assert at + size == len(data)
    assert request.topics[0].name == "t"


@pytest.mark.parametrize("version", range(5))
def test_an_answer_that_kio_writes_is_read(version: int) -> None:
    import io

    schema = load_response_schema(API_VERSIONS, version)
    fields = {"error_code": 0, "api_keys": (), "throttle_time": 0, "supported_features": (), "finalized_features": ()}
    data = messages.encode_response(API_VERSIONS, version, 9, fields)
    correlation_id, answer = messages.decode_response(API_VERSIONS, version, data)
    assert (correlation_id, answer.api_keys) == (9, ())
    out = io.BytesIO()
    entity_writer(schema)(out, answer)
    assert data.endswith(out.getvalue())


def test_a_cut_answer_is_a_value_error_wherever_it_is_cut() -> None:
    whole = messages.encode_response(
        OFFSET_FETCH,
        9,
        3,
        {"groups": [{"group_id": "g", "topics": [], "error_code": 0}]},
    )
    assert messages.decode_response(OFFSET_FETCH, 9, whole)[1].groups[0].group_id == "g"
    for end in range(len(whole)):
        with pytest.raises(ValueError):  # noqa: PT011
            messages.decode_response(OFFSET_FETCH, 9, whole[:end])


def test_the_versions_that_are_known_are_kios() -> None:
    for key, name in api_key_map.items():
        held = [version for version, kinds in schema_name_map[name].items() if any(k.name == "request" for k in kinds)]
        assert messages.known_versions(key) == ((min(held), max(held)) if held else None)
    assert messages.known_versions(9999) is None
    assert messages.api_name(METADATA) == "metadata"
    assert messages.api_name(9999) is None
