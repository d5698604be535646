"""Bytes that are no request close their connection, and no other one."""

import struct

import pytest
import raw
from raw import API_VERSIONS, FETCH, METADATA, PRODUCE, Client

SOFTWARE = {"client_software_name": "raw", "client_software_version": "1.0"}
GOOD = raw.encode_request(METADATA, 9, 5, {"topics": []})


@pytest.fixture
def witness(bootstrap):
    """A connection that is open before the garbage and must go on after it."""
    with Client(bootstrap) as connected:
        connected.call(METADATA, 9, {"topics": []})
        yield connected
        assert connected.call(METADATA, 9, {"topics": []}).brokers
    with Client(bootstrap) as afterwards:
        assert afterwards.call(METADATA, 9, {"topics": []}).brokers


@pytest.fixture
def client(bootstrap, witness):
    with Client(bootstrap) as connected:
        yield connected


def framed(payload):
    return struct.pack(">i", len(payload)) + payload


def header(api_key, version, client_id=b"\xff\xff"):
    return struct.pack(">hhi", api_key, version, 5) + client_id


def length(value):
    return struct.pack(">i", value)


CLOSED_AT_ONCE = {
    "length -1": length(-1) + b"abc",
    "length of the smallest integer": length(-(2**31)),
    "length 0": length(0),
    "length over 100 MB": length(100 * 1024 * 1024 + 1),
    "length of the largest integer": length(2**31 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "half a header": framed(b"\0\3"),
    "header without a client id": framed(GOOD[:7]),
    "client id longer than the frame": framed(header(API_VERSIONS, 0, b"\0\xc8") + b"ab"),
    "unknown API": framed(header(999, 0)),
    "negative API": framed(header(-1, 0)),
    "API between brokers": framed(header(52, 0)),
    "Metadata above the last version": framed(header(METADATA, 14) + b"\0\1\0\0\0"),
    "Metadata 99": framed(header(METADATA, 99) + b"\0\1\0\0\0"),
    "Metadata -1": framed(header(METADATA, -1) + bytes(4)),
    "Produce 2": framed(header(PRODUCE, 2) + b"\0\1\0\0\0\1" + bytes(4)),
    "Fetch 3": framed(header(FETCH, 3) + bytes(20)),
    "body of garbage": framed(GOOD[:10] + b"\xff" * 30),
    "body cut short": framed(GOOD[:-3]),
    "body of ApiVersions cut short": framed(raw.encode_request(API_VERSIONS, 3, 5, SOFTWARE)[:-4]),
    "array longer than the frame": framed(header(METADATA, 1) + length(2**31 - 1)),
    "null where there must be an array": framed(header(raw.CREATE_TOPICS, 2) + length(-1) + bytes(5)),
}


@pytest.mark.parametrize("case", CLOSED_AT_ONCE)
def test_garbage_closes_its_connection(client, case):
    client.socket.sendall(CLOSED_AT_ONCE[case])
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("case", CLOSED_AT_ONCE)
def test_good_request_in_front_of_garbage_is_answered(client, case):
    client.socket.sendall(framed(GOOD) + CLOSED_AT_ONCE[case])
    assert client.read_frame()[:4] == length(5)
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("cut_at", [1, 4, 5, 12, len(GOOD) + 3])
def test_client_that_leaves_in_the_middle_of_a_frame_is_forgotten(client, cut_at):
    client.socket.sendall(framed(GOOD)[:cut_at])
    client.socket.shutdown(1)
    assert client.is_closed_by_broker()


def test_frame_that_never_arrives_whole_is_not_answered(client):
    client.socket.sendall(length(100 * 1024 * 1024) + b"x" * 1000)
    client.socket.shutdown(1)
    assert client.is_closed_by_broker()


def test_frame_in_single_bytes_is_a_frame(client):
    for byte in framed(GOOD):
        client.socket.sendall(bytes([byte]))
    assert client.read_frame()[:4] == length(5)


TOLERATED = {
    "bytes after the body": GOOD + b"\0\0\0\0",
    "bytes after the body of ApiVersions": raw.encode_request(API_VERSIONS, 0, 5, {}) + b"xx",
    "unknown tagged fields": header(METADATA, 9) + b"\1\x63\2ab" + b"\1\0\0\0" + b"\1\5\3xyz",
    "client id that is no text": header(API_VERSIONS, 0, b"\0\2\xff\xfe"),
    "no client id": header(API_VERSIONS, 0),
}


@pytest.mark.parametrize("case", TOLERATED)
def test_what_can_still_be_understood_is_answered(client, case):
    client.socket.sendall(framed(TOLERATED[case]))
    assert client.read_frame()[:4] == length(5)
    assert client.call(METADATA, 9, {"topics": []}).brokers
