"""Requests that are long, or about many things, are done in steps; others are served between them."""

import dataclasses
import socket
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from sessions import asking
from socket_pair import framed
from waits import eventually

from headrace.broker import router, steps
from headrace.broker.api import Request
from headrace.broker.handlers import create_topics, load
from headrace.broker.steps import InSteps, Pause, Steps, is_long, stepped, writing
from headrace.core.errors import PeerError
from headrace.core.steps import finish
from headrace.net.transport import PlainTransport
from headrace.protocol import error_codes, messages
from headrace.protocol.framing import Chunk
from headrace.protocol.message_reader import Meter
from headrace.protocol.wire import MalformedError


def body(count, seen):
    for number in range(count):
        seen.append(number)
        yield
    return {"error_code": 0, "groups": []}


class Connection:
    """What a request in steps sees of its connection."""

    def __init__(self):
        self.closed = False
        self.sent, self.slots, self.failures = [], [], []

    def send(self, part):
        self.sent.append(part)

    def slot(self, *, barrier):
        assert barrier
        slot = SimpleNamespace(answers=[])
        slot.answer = slot.answers.append
        self.slots.append(slot)
        return slot

    def failed(self, error):
        self.failures.append(error)


@pytest.fixture
def soon():
    return []


@pytest.fixture
def begin(soon):
    connection = Connection()

    def begin(work, **how):
        request = Request(16, 0, 7, asking(), None)
        router = SimpleNamespace(reactor=SimpleNamespace(call_soon=soon.append))
        InSteps(router, connection, request, writing(request, work), **how).begin()
        return connection

    return begin


def go_on(soon):
    waiting, soon[:] = list(soon), []
    for each in waiting:
        each()


def test_what_is_done_within_its_time_is_answered_at_once(begin, soon, monkeypatch):
    monkeypatch.setattr(steps, "STEPS_S", 1e9)
    connection = begin(Steps(body(5, [])))
    assert len(connection.sent) == 1
    assert soon == connection.slots == []


def test_what_takes_longer_goes_on_turn_by_turn_and_holds_up_those_behind_it(begin, soon, monkeypatch):
    monkeypatch.setattr(steps, "STEPS_S", -1.0)  # any time is too long: one step in each turn
    seen = []
    connection = begin(Steps(body(3, seen)))
    assert seen == [0]
    while soon:
        before = len(seen)
        go_on(soon)
        assert len(seen) <= before + 1
    assert seen == [0, 1, 2]
    expected = messages.encode_response(16, 0, 7, {"error_code": 0, "groups": []})
    assert connection.slots[0].answers == [[len(expected).to_bytes(4, "big") + expected]]


@pytest.mark.parametrize("must_end", [False, True])
def test_a_client_that_leaves_is_not_worked_for_unless_something_changes(begin, soon, monkeypatch, must_end):
    monkeypatch.setattr(steps, "STEPS_S", -1.0)
    seen = []
    connection = begin(Steps(body(3, seen)), must_end=must_end)
    connection.closed = True
    while soon:
        go_on(soon)
    assert seen == ([0, 1, 2] if must_end else [0])


def test_a_step_that_fails_fails_its_request(begin, soon, monkeypatch):
    monkeypatch.setattr(steps, "STEPS_S", -1.0)

    def fails():
        yield
        raise ValueError("no")

    connection = begin(Steps(fails()))
    go_on(soon)
    assert [str(error) for error in connection.failures] == ["no"]
    assert connection.slots[0].answers == [[]], "it holds up nobody any more"


# ── long requests ────────────────────────────────────────────────────────────────────────────────────────────────────


class Long:
    """A Metadata request of 100 kB on a connection of a node, one step of it in each turn."""

    def __init__(self, node, monkeypatch):
        monkeypatch.setattr(steps, "STEPS_S", -1.0)
        self.handled = []
        monkeypatch.setattr(router, "load", self.load)
        ours, self.client = socket.socketpair()
        self.node, self.connection = node, node.server.admit(PlainTransport(ours), asking())

    def load(self, key):
        return dataclasses.replace(load(key), handle=self.handle)

    def handle(self, parts, request):
        self.handled.append(len(request.body.topics))
        if self.handled[-1] == 999:
            raise ValueError("a bad one")
        return {"brokers": [], "topics": []}

    def send(self, count=1000, topic="t" * 100, key=3):
        sent = messages.encode_request(key, 4, 1, "test", {"topics": [{"name": topic}] * count})
        chunk = Chunk(len(sent), None)
        chunk.view[:] = sent
        chunk.pins = 1
        self.node.router.dispatch(self.connection, chunk, 0, len(sent))

    def counted(self):
        assert self.connection.in_flight_bytes == self.node.server.in_flight_bytes
        return self.node.server.in_flight_bytes

    def run(self):
        while self.node.reactor._soon:
            self.node.reactor.run_soon()


@pytest.fixture
def long(node, monkeypatch):
    made = Long(node, monkeypatch)
    yield made
    made.client.close()


@pytest.mark.parametrize("count", [1000, 999])
def test_a_long_request_counts_as_under_way_until_it_is_answered_or_fails(long, count):
    long.send(count)
    assert long.counted() > 50_000
    long.run()
    assert long.handled == [count]
    assert long.counted() == 0
    assert long.connection.doomed == (count == 999)


def test_what_a_long_request_takes_as_objects_counts_for_its_connection(long):
    long.send()
    held = []
    while long.node.reactor._soon:
        long.node.reactor.run_soon()
        held.append(long.node.server.held_bytes)
        assert held[-1] == long.connection.body_bytes == long.connection.weight_bytes - long.connection.in_flight_bytes
    assert max(held) > 300_000, "a thousand objects with a name of a hundred bytes each, and their answer"
    assert sorted(held[:-1]) == held[:-1], "it grows while it is read"
    assert held[-1] == 0


def test_a_long_request_that_takes_too_much_as_objects_is_refused(long, monkeypatch):
    monkeypatch.setattr(router, "DECODED_BYTES_MAX", 100_000)
    long.send()
    long.run()
    assert long.handled == []
    assert long.connection.doomed
    assert (long.counted(), long.node.server.held_bytes) == (0, 0)


def test_a_long_request_whose_client_leaves_while_it_is_read_is_dropped(long):
    long.send()
    long.connection.close()
    long.run()
    assert long.handled == []
    assert long.counted() == 0


@pytest.mark.parametrize("must_end", [False, True])
def test_a_long_request_whose_client_leaves_goes_on_only_if_it_changes_something(long, monkeypatch, must_end):
    seen = []

    def answer():
        yield from body(10, seen)
        return {"brokers": [], "topics": []}

    monkeypatch.setattr(long, "handle", lambda parts, request: Steps(answer(), must_end=must_end))
    long.send()
    while not seen:
        long.node.reactor.run_soon()
    long.connection.close()
    long.run()
    assert len(seen) == (10 if must_end else 1)
    assert (long.counted(), long.node.server.held_bytes) == (0, 0)


def test_a_request_that_is_far_too_long_is_refused(long, monkeypatch):
    monkeypatch.setattr(router, "OTHER_REQUEST_BYTES_MAX", 50_000)
    with pytest.raises(MalformedError, match=r"api key 3: 1\d+ bytes; at most 50000 are taken"):
        long.send()


def test_a_few_things_are_done_at_once_and_many_in_steps():
    assert stepped(body(steps.FEW, []), steps.FEW) == {"error_code": 0, "groups": []}
    assert isinstance(stepped(body(9, []), steps.FEW + 1), Steps)


def test_an_answer_is_long_by_all_that_is_in_its_lists():
    assert not is_long({"topics": [{"partitions": [1] * 5}] * 10})
    assert is_long({"topics": [{"partitions": [{"index": 1}] * 5}] * 20})
    assert is_long({"topics": [1] * (steps.ITEMS_MIN + 1)})
    assert not is_long(b"x" * 10_000)


@pytest.mark.parametrize("version", range(14))
def test_a_request_and_an_answer_read_and_written_in_steps_are_the_same(version):
    topics = [{"name": f"topic-{number}", "topic_id": None} for number in range(300)]
    writer, _ = messages._request_writer(3, version)
    sent = bytearray()
    operations = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}
    writer.write(sent, {"topics": topics, **operations})
    at_once = messages.decode_request(3, version, bytes(sent), 0)
    assert finish(messages.decode_request_in_steps(3, version, bytes(sent), 0, Meter(1 << 20))) == at_once
    partitions = [
        {"error_code": 0, "partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]},
        {"error_code": 5, "partition_index": 1, "leader_id": -1, "replica_nodes": [], "isr_nodes": []},
    ]
    broker = {"node_id": 1, "host": "h", "port": 1, "rack": None}
    answered = {
        "brokers": [broker],
        "cluster_id": "c",
        "error_code": 0,
        "controller_id": 1,
        "topics": [
            {"error_code": 0, "name": f"t{number}", "topic_id": None, "partitions": partitions} for number in range(50)
        ],
    }
    whole = messages.encode_response(3, version, 9, answered)
    assert finish(messages.encode_response_in_steps(3, version, 9, answered)) == whole
    count = sum(1 for _ in messages.encode_response_in_steps(3, version, 9, answered))
    assert count > 100, "with a pause at each partition"


def test_a_long_request_that_is_cut_short_is_refused_in_steps_too():
    sent = bytearray()
    messages._request_writer(3, 1)[0].write(sent, {"topics": [{"name": "a" * 50}] * 100})
    with pytest.raises(ValueError, match="claims"):
        finish(messages.decode_request_in_steps(3, 1, bytes(sent[:-10]), 0, Meter(1 << 20)))


# ── topics that are changed in steps ─────────────────────────────────────────────────────────────────────────────────


def refused(code, work, *given):
    with pytest.raises(PeerError) as error:
        work(*given)
    return error.value.code == code


def test_a_topic_is_seen_when_all_of_it_is_made_and_its_name_is_taken_meanwhile(node):
    topics = node.topics
    making = node.controller.make_in_steps([node.controller.plan("orders", 20, {})])
    next(making)
    assert topics.get("orders") is None
    assert refused(error_codes.TOPIC_ALREADY_EXISTS, node.controller.plan, "orders", 1, {})
    assert refused(error_codes.LEADER_NOT_AVAILABLE, node.controller.ensure, "orders")
    finish(making)
    assert len(topics.get("orders").partitions) == 20


def test_a_topic_that_is_deleted_is_gone_at_once_and_its_name_free_when_all_of_it_is(node):
    topics = node.topics
    node.controller.create("orders", 20, {})
    deleting = node.controller.delete_in_steps("orders")
    next(deleting)
    assert topics.get("orders") is None
    assert refused(error_codes.TOPIC_ALREADY_EXISTS, node.controller.plan, "orders", 1, {})
    finish(deleting)
    node.controller.create("orders", 1, {})
    assert node.catalog.topics["orders"].partition_count == 1


def test_a_name_is_free_only_when_what_was_said_of_the_deleted_topic_is_forgotten(node):
    """Else the offsets that are committed for a new topic of that name would be forgotten, too."""
    for name in ("orders", "users"):
        node.controller.create(name, 1, {})
    told = []

    def deleted(gone):
        yield
        told.append(([topic.name for topic in gone], set(node.controller._plans._changing)))

    node.controller.on_deleted = deleted
    node.controller.delete("orders", "users")
    assert told == [(["orders", "users"], {"orders", "users"})]
    assert not node.controller._plans._changing


def test_a_topic_that_grows_keeps_its_partitions_until_all_are_there_and_is_not_changed_meanwhile(node):
    topics = node.topics
    node.controller.create("orders", 2, {})
    growing = node.controller.grow_in_steps("orders", 30)
    next(growing)
    assert len(topics.get("orders").partitions) == 2
    for change in (
        lambda: node.controller.grow("orders", 40),
        lambda: node.controller.alter("orders", {}),
        lambda: node.controller.delete("orders"),
    ):
        assert refused(error_codes.REQUEST_TIMED_OUT, change)
    finish(growing)
    assert len(topics.get("orders").partitions) == 30


def test_a_name_that_looks_like_one_that_is_being_made_or_deleted_is_refused(node):
    making = node.controller.make_in_steps([node.controller.plan("a.b", 20, {})])
    next(making)
    assert refused(error_codes.INVALID_TOPIC_EXCEPTION, node.controller.plan, "a_b", 1, {})
    finish(making)
    deleting = node.controller.delete_in_steps("a.b")
    next(deleting)
    assert refused(error_codes.INVALID_TOPIC_EXCEPTION, node.controller.plan, "a_b", 1, {})
    finish(deleting)
    node.controller.create("a_b", 1, {})


@pytest.mark.parametrize("change", ["make", "grow"])
def test_settings_that_change_while_logs_are_made_hold_for_all_of_them(node, change):
    topics = node.topics
    if change == "make":
        work = node.controller.make_in_steps([node.controller.plan("orders", 20, {})])
    else:
        node.controller.create("orders", 2, {})
        work = node.controller.grow_in_steps("orders", 20)
    next(work)
    topics.settings_changed(dataclasses.replace(node.settings, log_retention_ms=12_345))
    finish(work)
    topic = topics.get("orders")
    assert topic.config.retention_ms == 12_345
    assert {partition.led.config.retention_ms for partition in topic.partitions} == {12_345}


@pytest.mark.parametrize("key", [3, 35])
def test_a_topic_of_many_partitions_is_told_of_in_steps(node, key):
    node.controller.create("orders", 250, {})
    request = Request(key, 4, 1, asking(), SimpleNamespace(topics=None))
    answer = load(key).handle(node.parts, request)
    assert isinstance(answer, Steps)
    next(answer.body)
    next(answer.body)


def test_a_stop_in_the_middle_of_making_a_topic_is_made_good_by_the_next_start(make_node):
    node = make_node()
    making = node.controller.make_in_steps([node.controller.plan("orders", 20, {})])
    next(making)
    node.close()
    assert len(make_node().topics.get("orders").partitions) == 20


@pytest.mark.parametrize("steps_before", range(0, 50, 3))
def test_a_topic_that_two_requests_make_at_once_is_made_by_one_of_them(node, client, steps_before, monkeypatch):
    """Whenever the second one comes; a topic that was made twice would lose what was written to the first."""
    monkeypatch.setattr(create_topics, "TOPICS_PER_SLICE", 4)
    names = [f"t{number}" for number in range(12)]
    one = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    body = SimpleNamespace(
        topics=[SimpleNamespace(name=name, **one) for name in names],
        timeout=timedelta(seconds=1),
        validate_only=False,
    )
    making = create_topics.API.handle(node.parts, Request(19, 7, 1, asking(), body)).body
    for _ in range(steps_before):
        next(making, None)
    other = client.create(node, "t9")
    first = finish(making)
    answered = {} if first is None else {each["name"]: each["error_code"] for each in first["topics"]}
    codes = {other.error_code, answered.get("t9", 0)}
    assert codes == {error_codes.NONE, error_codes.TOPIC_ALREADY_EXISTS} or first is None
    if other.error_code == error_codes.NONE:
        assert node.topics.get("t9").id == node.catalog.topics["t9"].id == other.topic_id
    assert {topic.name for topic in node.topics.all()} == set(names)


def test_others_are_answered_while_one_request_makes_many_topics(make_node):
    """On a running node: the answer to a small request comes between the steps of a large one."""
    node = make_node()
    thread = threading.Thread(target=node.run, daemon=True)
    thread.start()
    order = []
    make = node.controller.make_in_steps

    def watched(planned):
        result = yield from make(planned)
        order.append("made")
        return result

    node.controller.make_in_steps = watched
    names = [
        {"name": f"t{number}", "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": []}
        for number in range(300)
    ]
    large = messages.encode_request(19, 4, 1, "test", {"topics": names, "timeout": 60_000, "validate_only": False})
    small = messages.encode_request(18, 0, 2, "test", {})
    with (
        socket.create_connection(("127.0.0.1", node.port)) as one,
        socket.create_connection(("127.0.0.1", node.port)) as two,
    ):
        one.sendall(framed(large))
        eventually(lambda: node.controller._plans._changing or order, "the topics are being made", poll_s=0)
        two.sendall(framed(small))
        assert two.recv(4)
        order.append("answered")
        assert one.recv(4)
    node.stop()
    thread.join()
    assert order.index("answered") < len(order) - 1, "before all are made"


def test_steps_that_pause_are_left_alone_until_the_pause_is_over(begin, soon):
    pause = Pause()

    def waiting():
        yield pause
        return {"error_code": 0, "groups": []}

    connection = begin(Steps(waiting()))
    assert (len(connection.slots), soon) == (1, [])
    pause.end()
    pause.end()  # a second time changes nothing
    assert len(soon) == 1
    soon.pop()()
    assert len(connection.slots[0].answers) == 1


def test_a_pause_that_is_over_already_holds_nothing_up(begin, soon):
    pause = Pause()
    pause.end()

    def waiting():
        yield pause
        return {"error_code": 0, "groups": []}

    connection = begin(Steps(waiting()))
    assert (len(connection.sent), soon) == (1, [])


def test_a_short_request_that_has_to_wait_goes_on_in_steps(begin, soon):
    pause = Pause()

    def waiting():
        yield None
        yield pause
        return {"error_code": 0, "groups": []}

    begun = stepped(waiting(), 1)
    assert isinstance(begun, Steps)
    connection = begin(begun)
    assert (connection.sent, soon) == ([], [])
    pause.end()
    soon.pop()()
    assert len(connection.slots[0].answers) == 1
