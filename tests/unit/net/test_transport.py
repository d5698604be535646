"""The transport of a plain socket, at one end of a pair."""

import os
import socket

import pytest

from headrace.net.transport import PlainTransport


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    yield PlainTransport(ours), theirs
    ours.close()
    theirs.close()


def test_what_comes_is_read_into_the_place_that_is_given(ends):
    transport, peer = ends
    target = memoryview(bytearray(8))
    with pytest.raises(BlockingIOError):
        transport.recv_into(target)
    peer.sendall(b"abc")
    assert (transport.recv_into(target), bytes(target[:3])) == (3, b"abc")
    peer.close()
    assert transport.recv_into(target) == 0


def test_bytes_pieces_and_files_are_sent_as_they_are(ends, tmp_path):
    transport, peer = ends
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_RDONLY)
    assert transport.send(b"abc") == 3
    assert transport.send_pieces([b"d", memoryview(b"ef")], True) == 3
    assert transport.send_file(fd, 4, 3) == 3
    assert transport.send_file(fd, 10, 3) == 0, "the file ends there"
    assert peer.recv(100) == b"abcdef456"
    os.close(fd)


def test_a_transport_that_is_full_says_so(ends):
    transport, _ = ends
    transport.send(b"x" * (64 << 20))
    with pytest.raises(BlockingIOError):
        transport.send(b"x")


def test_a_closed_one_is_closed_for_its_peer(ends):
    transport, peer = ends
    assert transport.fileno() >= 0
    transport.close()
    assert peer.recv(1) == b""
