"""A node on a thread of its own: what its maker is told of how it opens, ends and dies."""

import threading

import pytest

from headrace.core.errors import HeadraceError
from headrace.net import node_thread
from headrace.net.node_thread import NodeThread


class FakeNode:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.stopped = threading.Event()
        self.refuses: Exception | None = None
        self.dies: Exception | None = None

    def open(self) -> None:
        self.calls.append(f"open on {threading.current_thread().name}")
        if self.refuses is not None:
            raise self.refuses

    def run(self) -> None:
        self.stopped.wait()
        if self.dies is not None:
            raise self.dies

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.calls.append("close")

    def abandon(self) -> None:
        self.calls.append("abandon")


def test_a_node_lives_on_one_thread_and_is_closed_there() -> None:
    thread = NodeThread(FakeNode, "keeper")
    thread.start_and_wait()
    node = thread.node
    assert node.calls == ["open on headrace-keeper"]
    thread.stop_and_wait()
    assert node.calls[1:] == ["close"]


def test_a_killed_node_is_abandoned_and_not_closed() -> None:
    thread = NodeThread(FakeNode, "broker")
    thread.start_and_wait()
    thread.kill_and_wait()
    assert thread.node.calls[1:] == ["abandon"]


def test_what_keeps_a_node_from_opening_is_raised_where_it_is_started() -> None:
    node = FakeNode()
    node.refuses = HeadraceError("the port is in use")
    thread = NodeThread(lambda: node, "broker")
    with pytest.raises(HeadraceError, match="the port is in use"):
        thread.start_and_wait()
    assert node.calls[1:] == ["close"]


def test_what_a_node_cannot_be_made_of_is_raised_too() -> None:
    def make() -> FakeNode:
        raise HeadraceError("no such directory")

    with pytest.raises(HeadraceError, match="no such directory"):
        NodeThread(make, "broker").start_and_wait()


def test_what_a_node_died_of_is_raised_where_it_is_stopped() -> None:
    node = FakeNode()
    node.dies = HeadraceError("the disk is gone")
    thread = NodeThread(lambda: node, "broker")
    thread.start_and_wait()
    with pytest.raises(HeadraceError, match="the disk is gone"):
        thread.stop_and_wait()


def test_a_node_that_does_not_stop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_thread, "STOP_S_MAX", 0.0)
    node = FakeNode()
    monkeypatch.setattr(node, "stop", lambda: None)
    thread = NodeThread(lambda: node, "keeper")
    thread.start_and_wait()
    with pytest.raises(HeadraceError, match="the keeper did not stop within 0 s"):
        thread.stop_and_wait()
    node.stopped.set()
