"""A fetch of very many partitions, in steps: what one at once gives, and nothing that comes meanwhile is overlooked."""

import uuid
from types import SimpleNamespace

import pytest
from node_clients import connected, turn

from headrace.broker import fetch_sessions, steps
from headrace.broker.handlers import fetch as fetch_handler
from headrace.broker.handlers import fetch_slowly, one_fetch
from headrace.core.steps import finish
from headrace.protocol import fetch, messages
from headrace.protocol.message_reader import compile_reader
from headrace.protocol.message_writer import compile_writer
from headrace.protocol.records import build_plain_batch
from headrace.protocol.wire import MalformedError

PARTITIONS = 5
STRANGE = [0, 3, 3, 99, 1]
FOREVER_MS = 2**31 - 1
NOBODY = SimpleNamespace(done=lambda log, error: None)  # waits for a write


@pytest.fixture
def node(node):
    node.controller.create("t", PARTITIONS, {})
    node.controller.create("u", 1, {})
    return node


@pytest.fixture
def in_steps(monkeypatch):
    monkeypatch.setattr(fetch_handler, "AT_ONCE_MAX", 0)
    monkeypatch.setattr(fetch_slowly, "PARTITIONS_PER_STEP", 1)
    monkeypatch.setattr(steps, "STEPS_S", -1.0)


def append(node, index, value=b"value", topic="t"):
    now_ms = node.clock.now_ms()
    node.topics.get(topic).partitions[index].led.appender.stage_own(
        build_plain_batch([(b"k", value)], now_ms), now_ms, NOBODY
    )


def body(node, version, partitions, *, session=(0, -1), wait_ms=0, forgotten=(), min_bytes=1, last_epoch=-1):
    def named(topic):
        return {"topic_id": node.topics.get(topic).id if topic != "none" else uuid.UUID(int=7), "topic": topic}

    def wanted(index):
        one = {"partition": index, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1}
        more = {"last_fetched_epoch": last_epoch, "partition_max_bytes": 1 << 20}
        return one | more | {"replica_directory_id": None, "high_watermark": 2**63 - 1}

    topics = [{**named(topic), "partitions": [wanted(at) for at in indexes]} for topic, indexes in partitions]
    said = {
        "cluster_id": None,
        "replica_id": -1,
        "replica_state": {"replica_id": -1, "replica_epoch": -1},
        "max_wait": wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": topics,
        "forgotten_topics_data": [{**named(topic), "partitions": list(indexes)} for topic, indexes in forgotten],
        "rack_id": "",
    }
    return _only(said, messages._schema(fetch.KEY, version, "request"))


def _only(said, schema):
    """Of these fields those that the version has."""
    known = schema.__dataclass_fields__
    kept = {key: value for key, value in said.items() if key in known}
    for key, value in kept.items():
        inner = [each for each in getattr(known[key].type, "__args__", ()) if hasattr(each, "__dataclass_fields__")]
        if inner and isinstance(value, list):
            kept[key] = [_only(each, inner[0]) for each in value]
    return kept


def answer_of(node, client, *requests, version):
    """All bytes that the requests are answered with, one after the other."""
    received = b""
    for each in requests:
        client.dispatch(messages.encode_request(fetch.KEY, version, 1, "test", each))
        for _ in range(10_000):
            if client.is_answered():
                break
            turn(node)
        assert client.is_answered()
        received, client.received = received + client.received, b""
    return received


@pytest.mark.parametrize("version", range(fetch.LOW, fetch.HIGH + 1))
def test_a_request_read_in_steps_is_the_one_that_is_read_at_once(node, version, monkeypatch):
    said = body(node, version, [("t", STRANGE), ("u", [0])], session=(5, 6), wait_ms=70, forgotten=[("u", [0, 4])])
    sent = bytearray()
    schema = messages._schema(fetch.KEY, version, "request")
    compile_writer(schema).write(sent, said)
    entity, _ = compile_reader(schema).read(bytes(sent), 0)
    at_once = fetch.decode(memoryview(bytes(sent)), 0, len(sent), version)
    assert finish(fetch_slowly.from_body(entity, version)) == at_once
    monkeypatch.setattr(fetch, "NAMED_MAX", 5)
    with pytest.raises(MalformedError, match="topics or partitions; at most 5 are taken"):
        finish(fetch_slowly.from_body(entity, version))


@pytest.mark.parametrize("reads_in_steps", [False, True])
@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
def test_the_answer_is_the_same_byte_for_byte(node, in_steps, monkeypatch, version, reads_in_steps):
    for index in (0, 3):
        append(node, index)
    append(node, 0, b"x" * 100_000, topic="u")
    turn(node)
    session_ids = iter([11, 11, 12, 12])
    monkeypatch.setattr(fetch_sessions.random, "randrange", lambda *_: next(session_ids))
    named = [("t", STRANGE), ("u", [0]), ("none", [0])]

    def ask(client):
        node.fetch_sessions._sessions.clear()
        asked = [body(node, version, named), body(node, version, []), body(node, version, [("u", [0])])]
        if version >= 7:
            more = body(node, version, [("t", [2])], session=(11, 1), forgotten=[("t", [0])])
            wrong = body(node, version, [("t", [2])], session=(11, 9))
            again = body(node, version, [], session=(11, 2))
            asked += [body(node, version, [("t", [0, 1, 3])], session=(0, 0)), more, wrong, again]
            asked.append(body(node, version, [], session=(11, 3), forgotten=[("t", [0, 1, 2, 3])]))
        return answer_of(node, client, *asked, version=version)

    with connected(node) as make:
        monkeypatch.setattr(fetch_handler, "AT_ONCE_MAX", 100)
        monkeypatch.setattr(fetch_sessions.random, "randrange", lambda *_: 11)
        at_once = ask(make())
        monkeypatch.setattr(fetch_handler, "AT_ONCE_MAX", 0)
        if reads_in_steps:
            monkeypatch.setattr(fetch_handler, "READ_AT_ONCE_BYTES_MAX", 0)
        client = make()
        assert ask(client) == at_once
        assert (node.server.held_bytes, node.purgatory.count, client.connection.on_close) == (0, 0, [])


def waiting(node, client, wait_ms=FOREVER_MS):
    said = body(node, 11, [("t", [*range(PARTITIONS), 99][:PARTITIONS])], wait_ms=wait_ms)
    client.dispatch(messages.encode_request(fetch.KEY, 11, 1, "test", said))


@pytest.mark.parametrize("at_turn", range(25))
def test_a_record_that_comes_at_any_moment_is_answered_with(node, in_steps, at_turn):
    """Also between two steps of an attempt that has passed its partition already."""
    with connected(node) as make:
        client = make()
        waiting(node, client)
        for _ in range(at_turn):
            turn(node)
        assert not client.is_answered()
        append(node, 0, b"it has come")
        for _ in range(50):
            turn(node)
        assert client.is_answered()
        assert b"it has come" in client.received
        assert (node.server.held_bytes, node.purgatory.count, client.connection.hurry) == (0, 0, None)


def test_nothing_is_tried_while_nothing_comes(node, in_steps, monkeypatch):
    attempts = []
    read_some = one_fetch.OneFetch.read_some
    monkeypatch.setattr(
        one_fetch.OneFetch, "read_some", lambda self, *given: (attempts.append(1), read_some(self, *given))
    )
    with connected(node) as make:
        waiting(node, make())
        for _ in range(100):
            turn(node)
        assert len(attempts) == 2 * PARTITIONS, "once before it waits, and once after that"


@pytest.mark.parametrize("at_turn", range(0, 25, 3))
@pytest.mark.parametrize("ends", ["hurry", "left"])
def test_it_can_be_hurried_or_left_at_any_moment(node, in_steps, monkeypatch, at_turn, ends):
    monkeypatch.setattr(one_fetch, "FEW_PARTITIONS", 1)
    with connected(node) as make:
        client = make()
        waiting(node, client)
        for _ in range(at_turn):
            turn(node)
        assert node.server.held_bytes == PARTITIONS * one_fetch.PARTITION_BYTES
        if ends == "hurry":
            client.connection.hurry()
        else:
            client.connection.close()
        for _ in range(50):
            turn(node)
        assert client.is_answered() == (ends == "hurry")
        assert (node.server.held_bytes, node.purgatory.count) == (0, 0)


def test_what_was_read_for_a_client_that_left_is_let_go(node, in_steps, monkeypatch):
    """Files are pinned while they wait to be sent."""
    monkeypatch.setattr(one_fetch, "COPIES_BYTES_MAX", 0)
    for index in range(PARTITIONS):
        append(node, index)
    turn(node)
    with connected(node) as make:
        client = make()
        waiting(node, client)
        for _ in range(3):
            turn(node)
        pins = sum(file.pins for file in node.files._files.values())
        assert pins > 0
        client.connection.close()
        assert sum(file.pins for file in node.files._files.values()) == 0


def test_a_long_request_that_is_cut_short_closes_its_connection(node, in_steps, monkeypatch):
    monkeypatch.setattr(fetch_handler, "READ_AT_ONCE_BYTES_MAX", 0)
    sent = messages.encode_request(fetch.KEY, 11, 1, "test", body(node, 11, [("t", STRANGE)]))
    with connected(node) as make:
        client = make()
        client.dispatch(sent[:-30])
        for _ in range(20):
            turn(node)
        assert client.connection.closed
        assert node.server.held_bytes == 0
