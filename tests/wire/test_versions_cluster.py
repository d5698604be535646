"""ApiVersions, DescribeCluster, FindCoordinator and InitProducerId, over every version."""

import struct

import pytest
import raw
import raw_groups
from kio.index import load_response_schema
from kio.serial import entity_reader
from raw import API_VERSIONS, DESCRIBE_CLUSTER, FIND_COORDINATOR, INIT_PRODUCER_ID, ErrorCode

SOFTWARE = {"client_software_name": "raw", "client_software_version": "1.0"}
NOT_ASKED = -(2**31)
each_api_versions = pytest.mark.parametrize("version", raw.versions(API_VERSIONS))
each_cluster = pytest.mark.parametrize("version", raw.versions(DESCRIBE_CLUSTER))
each_find = pytest.mark.parametrize("version", raw.versions(FIND_COORDINATOR))
each_init = pytest.mark.parametrize("version", raw.versions(INIT_PRODUCER_ID))


@each_api_versions
def test_what_is_advertised_is_what_these_tests_exercise(client, is_headrace, version):
    answer = client.call(API_VERSIONS, version, SOFTWARE)
    assert answer.error_code == 0
    found = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert len(found) == len(answer.api_keys), "an API is named once"
    if found[raw.PRODUCE][0] == 0:  # Kafka says so to old librdkafka, and serves from 3 on
        found[raw.PRODUCE] = (3, found[raw.PRODUCE][1])
    exercised = {**raw.VERSIONS, **raw_groups.VERSIONS}
    if not is_headrace:
        found = {key: each for key, each in found.items() if key in exercised}
    assert found == exercised
    if version >= 1:
        assert answer.throttle_time.total_seconds() == 0


@pytest.mark.parametrize("version", [5, 99, -1, 32767])
def test_unknown_version_of_api_versions_is_answered_in_version_0(client, version):
    """So that a newer client learns what to ask for; Kafka names only ApiVersions itself here."""
    client.send_frame(struct.pack(">hhih", API_VERSIONS, version, 77, -1) + b"\0\x04raw\x021\0")
    frame = client.read_frame()
    body, size = entity_reader(load_response_schema(API_VERSIONS, 0))(frame, 4)
    assert (frame[:4], 4 + size) == (struct.pack(">i", 77), len(frame))
    assert body.error_code == ErrorCode.unsupported_version
    assert (18, 0, 4) in [(each.api_key, each.min_version, each.max_version) for each in body.api_keys]
    assert client.call(API_VERSIONS, 3, SOFTWARE).error_code == 0, "the connection goes on"


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("field", SOFTWARE)
@pytest.mark.parametrize("value", ["", "a b", "-a", "a!"])
def test_strange_client_software_is_refused(client, version, field, value):
    answer = client.call(API_VERSIONS, version, SOFTWARE | {field: value})
    assert (answer.error_code, answer.api_keys) == (ErrorCode.invalid_request, ())


@each_cluster
def test_describes_the_cluster(client, bootstrap, version):
    answer = client.call(DESCRIBE_CLUSTER, version, {})
    assert (answer.error_code, answer.error_message, answer.throttle_time.total_seconds()) == (0, None, 0)
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == bootstrap
    assert (broker.rack, answer.controller_id) == (None, broker.broker_id)
    assert len(answer.cluster_id) == 22
    assert answer.cluster_authorized_operations == NOT_ASKED
    if version >= 1:
        assert answer.endpoint_type == 1
    if version >= 2:
        assert broker.is_fenced is False


@each_cluster
def test_authorized_operations_are_told_when_asked_for(client, version):
    asked = {"include_cluster_authorized_operations": True, "include_fenced_brokers": True}
    assert client.call(DESCRIBE_CLUSTER, version, asked).cluster_authorized_operations == 8096


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        (
            2,
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        ),
        (9, ErrorCode.unsupported_endpoint_type, "Unsupported endpoint type 9"),
    ],
)
def test_controllers_are_not_described_by_brokers(client, version, kind, code, message):
    answer = client.call(DESCRIBE_CLUSTER, version, {"endpoint_type": kind})
    assert (answer.error_code, answer.error_message) == (code, message)
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, ())


def find(client, version, *keys, kind=0):
    """[(key, error, message, node, host:port)], whether the version asks for one key or for many."""
    body = {"key": keys[0] if keys else "", "key_type": kind, "coordinator_keys": keys}
    answer = client.call(FIND_COORDINATOR, version, body)
    if version >= 1:
        assert answer.throttle_time.total_seconds() == 0
    rows = answer.coordinators if version >= 4 else [answer]
    return [
        (
            getattr(row, "key", None),
            row.error_code,
            getattr(row, "error_message", None),
            row.node_id,
            f"{row.host}:{row.port}",
        )
        for row in rows
    ]


@each_find
def test_finds_the_coordinator_of_each_group(client, bootstrap, version):
    node = client.call(raw.METADATA, 12, {"topics": []}).brokers[0].node_id
    keys = ("one", "two") if version >= 4 else ("one",)
    # Apache Kafka makes the topic behind its coordinators when one is first asked for.
    raw.eventually(lambda: all(row[1] == 0 for row in find(client, version, *keys)))
    message = None if version == 0 else "NONE" if version < 4 else ""
    expected = [(key if version >= 4 else None, 0, message, node, bootstrap) for key in keys]
    assert find(client, version, *keys) == expected


@pytest.mark.parametrize("version", raw.versions(FIND_COORDINATOR)[4:])
def test_batched_request_answers_each_key_as_often_as_it_is_asked(client, version):
    assert find(client, version) == []
    assert [row[0] for row in find(client, version, "one", "one")] == ["one", "one"]


@pytest.mark.parametrize("version", raw.versions(FIND_COORDINATOR)[1:])
def test_unknown_kind_of_coordinator_is_refused(client, version):
    ((_, code, message, node, address),) = find(client, version, "one", kind=7)
    assert (code, node, address) == (ErrorCode.invalid_request, -1, ":-1")
    assert message, "whatever is refused is told why"


def init(client, version, **fields):
    """(error, producer id, epoch); Apache Kafka needs a moment after its start."""
    body = {"transactional_id": None, "transaction_timeout": 60000, "producer_id": -1, "producer_epoch": -1}
    found = []

    def is_loaded():
        answer = client.call(INIT_PRODUCER_ID, version, body | fields)
        assert answer.throttle_time.total_seconds() == 0
        found[:] = [answer.error_code, answer.producer_id, answer.producer_epoch]
        return found[0] != ErrorCode.coordinator_load_in_progress

    raw.eventually(is_loaded)
    return tuple(found)


@each_init
def test_producers_without_a_transaction_get_new_ids_with_epoch_0(client, version):
    made = [init(client, version) for _ in range(3)]
    assert {(code, epoch) for code, _, epoch in made} == {(0, 0)}
    assert len({producer for _, producer, _ in made}) == 3
    assert all(producer >= 0 for _, producer, _ in made)


@each_init
def test_timeout_means_nothing_without_a_transaction(client, version):
    assert init(client, version, transaction_timeout=-1)[0] == 0


@pytest.mark.parametrize("version", raw.versions(INIT_PRODUCER_ID)[3:])
def test_producer_that_has_an_id_gets_a_new_one(client, version):
    """Only a transactional producer keeps its id with a higher epoch."""
    _, first, _ = init(client, version)
    code, second, epoch = init(client, version, producer_id=first, producer_epoch=0)
    assert (code, epoch) == (0, 0)
    assert second != first


@pytest.mark.parametrize("version", raw.versions(INIT_PRODUCER_ID)[3:])
@pytest.mark.parametrize("half", [{"producer_id": 5}, {"producer_epoch": 3}], ids=["id only", "epoch only"])
def test_id_without_epoch_and_epoch_without_id_are_refused(client, version, half):
    assert init(client, version, **half) == (ErrorCode.invalid_request, -1, -1)


@each_init
def test_empty_transactional_id_is_refused(client, version):
    assert init(client, version, transactional_id="") == (ErrorCode.invalid_request, -1, -1)
