"""The listening socket that every server of ours has."""

import errno
import socket
from types import SimpleNamespace

import pytest

from headrace.core.errors import OperatorError
from headrace.net.listener import ACCEPTS_PER_TURN, Listener
from headrace.net.reactor import READ, Reactor


@pytest.fixture
def reactor():
    made = Reactor()
    yield made
    made.close()


def test_a_port_in_use_is_named_with_what_to_do(reactor):
    first = Listener(reactor, "127.0.0.1", 0, lambda sock, address: None)
    with pytest.raises(OperatorError, match=f"127.0.0.1:{first.port}: the port is in use; stop the process"):
        Listener(reactor, "127.0.0.1", first.port, lambda sock, address: None)
    first.close()
    first.close()


def test_a_turn_accepts_so_many_and_no_more(reactor):
    welcomed = []
    listener = Listener(reactor, "127.0.0.1", 0, lambda sock, address: welcomed.append(sock))
    clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(ACCEPTS_PER_TURN + 3)]
    listener._accept(READ)
    assert len(welcomed) == ACCEPTS_PER_TURN
    listener._accept(READ)
    assert len(welcomed) == ACCEPTS_PER_TURN + 3
    listener.close()
    listener._accept(READ)
    for each in (*clients, *welcomed):
        each.close()


def test_without_descriptors_it_looks_away_for_a_moment(reactor, monkeypatch):
    welcomed, changes = [], []
    listener = Listener(reactor, "127.0.0.1", 0, lambda sock, address: welcomed.append(sock))
    client = socket.create_connection(("127.0.0.1", listener.port))
    real = listener._socket

    def refuse():
        raise OSError(errno.EMFILE, "Too many open files")

    listener._socket = SimpleNamespace(accept=refuse, fileno=real.fileno)
    monkeypatch.setattr(reactor, "change", lambda fd, events: changes.append(events))
    listener._accept(READ)
    assert (changes, welcomed) == ([0], [])
    listener._socket = real
    reactor.advance(1)
    reactor._run_timers()
    assert changes == [0, READ]
    listener._accept(READ)
    assert len(welcomed) == 1
    listener.close()
    for each in (client, *welcomed):
        each.close()
