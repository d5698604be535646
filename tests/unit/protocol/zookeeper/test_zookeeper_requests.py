"""Requests and answers: what one side writes, the other reads."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.acl import Acl
from headrace.protocol.zookeeper.framing import Frames
from headrace.protocol.zookeeper.jute import MalformedError, Reader
from headrace.protocol.zookeeper.request_bytes import connect_frame, request_frame
from headrace.protocol.zookeeper.results import read_result, read_welcome

INT = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=20)
DATA = st.none() | st.binary(max_size=40)
ACL = st.lists(st.builds(Acl, INT, TEXT, TEXT), max_size=3).map(tuple)
PATHS = st.lists(TEXT, max_size=4)

PLAIN_CREATE = st.builds(
    requests.Create,
    st.sampled_from((codes.CREATE, codes.CREATE2, codes.CREATE_CONTAINER)),
    TEXT,
    DATA,
    ACL,
    INT,
    st.just(-1),
)
CREATE = PLAIN_CREATE | st.builds(requests.Create, st.just(codes.CREATE_TTL), TEXT, DATA, ACL, INT, LONG)
STEP = (
    CREATE
    | st.builds(requests.Delete, TEXT, INT)
    | st.builds(requests.SetData, TEXT, DATA, INT)
    | st.builds(requests.Check, TEXT, INT)
)
WATCHABLE = st.sampled_from((codes.EXISTS, codes.GET_DATA, codes.GET_CHILDREN, codes.GET_CHILDREN2))
UNWATCHED = st.sampled_from((codes.GET_ACL, codes.GET_ALL_CHILDREN_NUMBER, codes.GET_EPHEMERALS, codes.SYNC))
READ_STEP = st.builds(requests.Read, st.sampled_from((codes.GET_DATA, codes.GET_CHILDREN)), TEXT, st.booleans())
REQUEST = (
    STEP.filter(lambda step: not isinstance(step, requests.Check))
    | st.builds(requests.SetAcl, TEXT, ACL, INT)
    | st.builds(requests.Read, WATCHABLE, TEXT, st.booleans())
    | st.builds(requests.Read, UNWATCHED, TEXT, st.just(False))
    | st.builds(requests.Multi, st.lists(STEP, max_size=4).map(tuple))
    | st.builds(requests.MultiRead, st.lists(READ_STEP, max_size=4).map(tuple))
    | st.builds(requests.SetWatches, LONG, PATHS, PATHS, PATHS, PATHS, PATHS)
    | st.builds(requests.AddWatch, TEXT, INT)
    | st.builds(requests.Watches, st.sampled_from((codes.CHECK_WATCHES, codes.REMOVE_WATCHES)), TEXT, INT)
    | st.builds(requests.Auth, TEXT, st.binary(max_size=20))
    | st.builds(requests.Plain, st.sampled_from((codes.PING, codes.CLOSE_SESSION, codes.WHO_AM_I)))
)


@given(INT, REQUEST)
def test_a_server_reads_the_request_that_a_client_wrote(xid: int, request: requests.Request) -> None:
    (frame,) = Frames(1 << 20).feed(request_frame(xid, request))
    assert requests.read_header(frame)[0] == xid
    assert requests.read_request(frame) == request


def test_a_change_of_an_ensemble_is_written_as_zookeeper_reads_it() -> None:
    frame = request_frame(7, requests.Reconfig("1", None, None, -1))
    assert frame.hex() == "0000001d00000007000000100000000131ffffffffffffffffffffffffffffffff"


@given(st.builds(requests.Connect, INT, LONG, INT, LONG, st.binary(max_size=16), st.none() | st.booleans()))
def test_a_server_reads_the_connect_that_a_client_wrote(asked: requests.Connect) -> None:
    (frame,) = Frames(1 << 20).feed(connect_frame(asked))
    assert requests.read_connect(frame) == asked


@given(st.lists(st.binary(max_size=50)), st.data())
def test_frames_split_anywhere_are_the_same(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    frames, found = Frames(50), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += frames.feed(stream[:size])
        stream = stream[size:]
    assert found == bodies


def test_a_frame_beyond_the_limit_is_refused_before_it_has_come() -> None:
    with pytest.raises(MalformedError, match="a frame of 51 bytes; the limit is 50"):
        list(Frames(50).feed((51).to_bytes(4, "big")))


@given(REQUEST, st.binary(max_size=200))
def test_an_answer_of_any_bytes_is_read_or_malformed_and_nothing_else(request: requests.Request, data: bytes) -> None:
    for read in (lambda: read_result(request, Reader(data)), lambda: read_welcome(data)):
        with contextlib.suppress(MalformedError):
            read()
