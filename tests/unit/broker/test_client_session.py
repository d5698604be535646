"""What a connection's session knows of its client, and which requests see it."""

import pytest
from node_clients import connected, turn
from sessions import asking

from headrace.broker.client_software import NAMES_MAX, OTHER, ClientSoftware
from headrace.protocol import fetch, messages, produce
from headrace.protocol.wire import MalformedError

METADATA, API_VERSIONS = 3, 18


@pytest.fixture
def clients(node):
    with connected(node) as make:
        yield make


def request(key, version, client_id, body):
    """A request whose client id may be null."""
    sent = messages.encode_request(key, version, 1, client_id or "", body)
    return sent if client_id is not None else sent[:8] + b"\xff\xff" + sent[10:]


def fetch_body():
    return {"max_wait": 0, "min_bytes": 0, "max_bytes": 1, "isolation_level": 0, "topics": []}


@pytest.mark.parametrize("given", ["one", "", None, "zwölf"])
def test_every_request_sees_the_client_id_of_its_own_header(clients, given):
    client = clients()
    session = client.connection.session
    for client_id in ("before", given, given, "after"):
        client.dispatch(request(METADATA, 1, client_id, {"topics": []}))
        assert session.client_id == client_id


def test_produce_and_fetch_see_the_session_and_the_client_id(node, clients, client, monkeypatch):
    client.create(node, "t")
    seen = []
    for handler in (node.router._produce, node.router.fetch_handler):
        real = type(handler).handle

        def handle(self, connection, *rest, real=real):
            seen.append((connection.session, connection.session.client_id))
            return real(self, connection, *rest)

        monkeypatch.setattr(type(handler), "handle", handle)
    one = clients()
    body = {"transactional_id": None, "acks": 1, "timeout": 0, "topic_data": []}
    one.dispatch(request(produce.KEY, 3, "writer", body))
    one.dispatch(request(fetch.KEY, 4, "reader", {"replica_id": -1, **fetch_body()}))
    assert seen == [(one.connection.session, "writer"), (one.connection.session, "reader")]


def test_a_steady_client_id_is_decoded_once(clients):
    client = clients()
    client.dispatch(request(METADATA, 1, "steady", {"topics": []}))
    known = client.connection.session.id_bytes
    client.dispatch(request(METADATA, 1, "steady", {"topics": []}))
    assert client.connection.session.id_bytes is known


def test_the_software_of_a_client_is_known_from_its_greeting(node, clients):
    one = clients()
    one.ask(API_VERSIONS, 3, {"client_software_name": "librdkafka", "client_software_version": "2.12.0"})
    session = one.connection.session
    assert (session.software_name, session.software_version) == ("librdkafka", "2.12.0")
    assert node.server.gauges()["connections_by_software"] == {("librdkafka",): 1}
    one.connection.close()
    assert node.server.gauges()["connections_by_software"] == {}


def test_of_a_long_name_of_software_only_the_beginning_is_kept(clients):
    one = clients()
    one.ask(API_VERSIONS, 3, {"client_software_name": "n" * 100_000, "client_software_version": "1" * 100_000})
    session = one.connection.session
    assert (session.software_name, session.software_version) == ("n" * 100, "1" * 100)


def test_a_client_that_has_not_authenticated_may_only_say_hello(node, clients):
    client = clients()
    client.connection.session.is_authenticated = False
    hello = {"client_software_name": "x", "client_software_version": "1"}
    assert client.ask(API_VERSIONS, 3, hello).error_code == 0
    before = node.metrics.requests[METADATA]
    with pytest.raises(MalformedError, match="api key 3 from a client that has not authenticated"):
        client.dispatch(request(METADATA, 1, "x", {"topics": []}))
    turn(node)
    assert node.metrics.requests[METADATA] == before


def test_the_names_of_client_software_are_bounded():
    software = ClientSoftware()
    for number in range(NAMES_MAX + 5):
        software.tell(number, f"client-{number}")
    assert len(software.counts()) == NAMES_MAX + 1
    assert software.counts()[OTHER,] == 5
    for number in range(NAMES_MAX + 5):
        software.forget(number)
        software.forget(number)
    assert software.counts() == {}


def test_a_client_that_says_hello_twice_counts_once():
    software = ClientSoftware()
    who = asking()
    software.tell(who, "one")
    software.tell(who, "two")
    assert software.counts() == {("two",): 1}
