"""ApiVersions, DescribeCluster, FindCoordinator, InitProducerId."""

from types import SimpleNamespace

import pytest
from sessions import asking

from headrace.broker.api import Request
from headrace.broker.handlers import ADVERTISED, TABLE, api_versions, load, load_all, metadata
from headrace.core.errors import StorageError
from headrace.protocol import error_codes as codes

API_VERSIONS, INIT, FIND, CLUSTER = 18, 22, 10, 60

# What Apache Kafka 4.3.1 advertises, for the requests that are served here.
KAFKA = {
    2: (1, 11),
    3: (0, 13),
    10: (0, 6),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    27: (1, 2),
    32: (1, 4),
    33: (0, 2),
    35: (1, 5),
    37: (0, 3),
    44: (0, 1),
    60: (0, 2),
    75: (0, 0),
}


def test_versions_are_those_of_kafka():
    assert {api.key: (api.low, api.high) for api in load_all() if api.key in KAFKA} == KAFKA


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_what_the_router_serves(node, client, version):
    answer = client.ask(node, API_VERSIONS, version, client_software_name="x", client_software_version="1.0")
    assert answer.error_code == 0
    assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == list(ADVERTISED)


@pytest.mark.parametrize(("name", "version"), [("-x", "1"), ("x", ""), ("x y", "1"), ("x", "1.")])
def test_a_client_with_a_bad_name_or_version_is_refused(node, client, name, version):
    answer = client.ask(node, API_VERSIONS, client_software_name=name, client_software_version=version)
    assert (answer.error_code, answer.api_keys) == (codes.INVALID_REQUEST, ())


def test_a_version_of_the_future_is_answered_with_the_range_of_this_api(node):
    answer = api_versions.handle(node.parts, Request(API_VERSIONS, 99, 1, asking(), None))
    assert answer == {
        "error_code": codes.UNSUPPORTED_VERSION,
        "api_keys": [{"api_key": API_VERSIONS, "min_version": 0, "max_version": 4}],
    }


def wanted(operations, endpoint=1):
    return {
        "include_cluster_authorized_operations": operations,
        "endpoint_type": endpoint,
        "include_fenced_brokers": False,
    }


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_over_all_versions(node, client, version):
    answer = client.ask(node, CLUSTER, version, **wanted(True))
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, node.cluster_id, 1)
    assert (answer.brokers[0].host, answer.brokers[0].port) == ("127.0.0.1", node.port)
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint", "code"), [(2, codes.MISMATCHED_ENDPOINT_TYPE), (3, codes.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_a_broker_is_no_controller(node, client, endpoint, code):
    answer = client.ask(node, CLUSTER, **wanted(False, endpoint))
    assert (answer.error_code, answer.brokers, answer.controller_id) == (code, (), -1)


@pytest.mark.parametrize("version", range(7))
def test_this_node_coordinates_groups(node, client, version):
    answer = client.ask(node, FIND, version, key="g", key_type=0, coordinator_keys=["g", "h"])
    found = answer.coordinators if version >= 4 else [answer]
    assert {(f.error_code, f.node_id, f.host, f.port) for f in found} == {(0, 1, "127.0.0.1", node.port)}
    if version >= 4:
        assert [f.key for f in found] == ["g", "h"]


def test_other_kinds_of_coordinators_are_refused(node, client):
    (answer,) = client.ask(node, FIND, key_type=2, coordinator_keys=["g"]).coordinators
    assert (answer.error_code, answer.node_id, answer.port) == (codes.INVALID_REQUEST, -1, -1)


@pytest.fixture
def init(node, client):
    def call(version=5, transactional_id=None, producer_id=-1, producer_epoch=-1):
        answer = client.ask(
            node,
            INIT,
            version,
            transactional_id=transactional_id,
            transaction_timeout=1000,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        return answer.error_code, answer.producer_id, answer.producer_epoch

    return call


def test_each_producer_gets_an_id_of_its_own_over_all_versions(init):
    assert [init(version) for version in range(6)] == [(0, number, 0) for number in range(6)]
    assert init(producer_id=5, producer_epoch=1) == (0, 6, 0)


def test_producers_that_cannot_be_served(init, node, monkeypatch):
    assert init(transactional_id="") == (codes.INVALID_REQUEST, -1, -1)
    assert init(producer_id=5) == init(producer_epoch=5) == (codes.INVALID_REQUEST, -1, -1)

    def full():
        raise StorageError("full")

    monkeypatch.setattr(node.producer_ids, "next", full)
    assert init() == (codes.KAFKA_STORAGE_ERROR, -1, -1)


def test_a_client_is_told_the_address_that_it_came_in_by_when_all_are_listened_on(make_node):
    node = make_node(host="0.0.0.0")
    request = Request(3, 1, 1, asking(local_host="10.1.2.3"), SimpleNamespace(topics=()))
    assert b"10.1.2.3" in metadata.handle(node.parts, request)


def test_the_advertised_address_wins(make_node, client):
    node = make_node(advertised_host="kafka.example", advertised_port=1234)
    answer = client.ask(node, CLUSTER, **wanted(False))
    assert (answer.brokers[0].host, answer.brokers[0].port) == ("kafka.example", 1234)


def test_the_table_says_of_each_handler_what_it_says_of_itself():
    for served in TABLE:
        api = load(served.key)
        assert (api.key, api.name, api.low, api.high) == served[:4]
    assert load(9999) is None
