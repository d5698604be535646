"""What waits to be sent, on a transport that takes as much of it as a test says."""

import errno

import pytest
from fake_transport import FakeTransport
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.file_slice import COPIED_BYTES_MAX, Slice
from headrace.core.files import Disk, OpenFiles
from headrace.net.outbox import Outbox
from headrace.net.traffic import Traffic

LARGE = COPIED_BYTES_MAX + 1


class Stored:
    """Not a tuple: a test that fails would show all of its bytes."""

    def __init__(self, file, data):
        self.file = file
        self.data = data


@pytest.fixture
def transport():
    made = FakeTransport()
    yield made
    made.close()


@pytest.fixture
def outbox(transport):
    return Outbox(transport, Traffic())


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "file"
    path.write_bytes(bytes(range(256)) * 1000)
    files = OpenFiles(Disk(), 4)
    yield Stored(files.get(str(path)), path.read_bytes())
    files.close()


def send_all(outbox):
    while len(outbox):
        outbox.send()


def test_what_a_transport_takes_in_part_is_sent_on_where_it_stopped(transport, outbox):
    transport.takes = [3, 0, 2]
    outbox.put(b"abcdefgh")
    outbox.send()
    assert (transport.sent, outbox.stalled, outbox.bytes_held) == (b"abc", True, 5)
    outbox.send()
    assert (transport.sent, outbox.stalled, outbox.bytes_held) == (b"abc", True, 5)
    outbox.send()
    assert (transport.sent, outbox.stalled) == (b"abcde", True)
    outbox.send()
    assert (transport.sent, outbox.stalled, outbox.bytes_held, len(outbox)) == (b"abcdefgh", False, 0, 0)


def test_a_large_slice_goes_out_as_a_file_and_the_head_before_it_waits_for_it(transport, outbox, stored):
    file, data = stored.file, stored.data
    outbox.put(b"head")
    outbox.put(Slice(file, 7, LARGE))
    outbox.put(b"tail")
    outbox.send()
    assert transport.files == [(7, LARGE)]
    assert transport.more == [True, False]
    assert transport.sent == b"head" + data[7 : 7 + LARGE] + b"tail"
    assert file.pins == 0


@pytest.mark.parametrize("broken_at", [0, 1, 2, 3])
def test_a_transport_that_breaks_in_the_middle_of_an_answer_leaves_no_file_open(transport, outbox, stored, broken_at):
    file = stored.file
    transport.takes = [*[4, 100, 200, 300][:broken_at], OSError(errno.EPIPE, "gone")]
    for part in (b"head", Slice(file, 0, LARGE), b"tail", Slice(file, 0, 10)):
        outbox.put(part)
    with pytest.raises(OSError, match="gone"):
        send_all(outbox)
    outbox.drop()
    assert (file.pins, len(outbox), outbox.bytes_held) == (0, 0, 0)


@settings(max_examples=100, deadline=None)
@given(
    spans=st.lists(
        st.tuples(st.booleans(), st.integers(0, 100_000), st.sampled_from([1, 60, 5000, LARGE, LARGE + 9000])),
        min_size=1,
        max_size=6,
    ),
    takes=st.lists(st.sampled_from([0, 1, 59, 61, 4000, 90_000]), max_size=30),
)
def test_the_bytes_and_their_order_are_the_same_however_little_is_taken(stored, spans, takes):
    file, data = stored.file, stored.data
    transport, traffic = FakeTransport(), Traffic()
    outbox = Outbox(transport, traffic)
    transport.takes = list(takes)
    expected = b""
    for is_slice, start, size in spans:
        expected += data[start : start + size]
        outbox.put(Slice(file, start, size) if is_slice else data[start : start + size])
    for _ in range(len(takes) + 1):
        outbox.send()
        assert outbox.stalled == bool(len(outbox))
    assert transport.sent == expected
    assert (file.pins, outbox.bytes_held, traffic.bytes_out) == (0, 0, len(expected))
    transport.close()
