import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from socket_pair import Pair

from headrace.core.file_slice import Slice
from headrace.core.files import Disk, OpenFiles
from headrace.net import outbox


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "file"
    data = os.urandom(400_000)
    path.write_bytes(data)
    return str(path), data


SPANS = st.lists(
    st.tuples(
        st.sampled_from(["bytes", "slice"]), st.integers(0, 300_000), st.sampled_from([1, 50, 999, 1001, 9000, 90_000])
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=50, deadline=None)
@given(
    answers=st.lists(SPANS, min_size=1, max_size=3),
    buffer_bytes=st.sampled_from([2304, 10_000, None]),
    reads=st.lists(st.integers(700, 60_000), min_size=1, max_size=5),
)
def test_answers_of_bytes_and_slices_arrive_whole_however_little_the_socket_takes(stored, answers, buffer_bytes, reads):
    path, data = stored
    files = OpenFiles(Disk(), 4)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"COPIED_BYTES_MAX": 1000, "GATHERED_BYTES_MAX": 2000, "PIECES_MAX": 3}.items():
            patch.setattr(outbox, name, value)
        patch.setattr(outbox, "SENDFILE_BYTES_MAX", 20_000)
        pair = Pair(buffer_bytes=buffer_bytes)
        pair.ask(*[f"later {i}" for i in range(len(answers))])
        expected = b""
        for number, spans in enumerate(answers):
            parts = []
            for kind, start, size in spans:
                expected += data[start : start + size]
                parts.append(Slice(files.get(path), start, size) if kind == "slice" else data[start : start + size])
            pair.slots[str(number)].answer(parts)
        pair.turn()
        at = 0
        while len(pair.received) < len(expected):
            pair.read(reads[at % len(reads)])
            pair.turn()
            at += 1
        assert pair.received == expected
        assert files.get(path).pins == 0
        assert pair.connection.out.bytes_held == 0
        assert pair.server.metrics.bytes_out == len(expected)
        pair.end()
    files.close()


@pytest.mark.parametrize("size", [500, 200_000])
def test_a_file_that_became_shorter_ends_the_connection_and_never_the_order_of_its_bytes(tmp_path, size):
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    files = OpenFiles(Disk(), 4)
    pair = Pair()
    pair.ask("later a", "now b")
    slice_ = Slice(files.get(str(path)), 0, size)
    os.truncate(path, size // 2)
    pair.answer("a", [struct.pack(">i", size), slice_])
    pair.answers()
    assert pair.connection.closed
    assert len(pair.received) <= 4 + size // 2
    assert files.get(str(path)).pins == 0
    pair.end()
    files.close()
