import itertools
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol import framing
from headrace.protocol.framing import Chunk, ChunkPool, FrameReader

SIZE_MAX = 1 << 20


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """So small that a few hundred bytes make chunks grow, retire and come back."""
    monkeypatch.setattr(framing, "ARENA_BYTES", 256)
    monkeypatch.setattr(framing, "ROOM_BYTES_MIN", 32)
    monkeypatch.setattr(framing, "READ_BYTES_MAX", 64)
    monkeypatch.setattr(framing, "FIRST_BUFFER_BYTES", 512)
    monkeypatch.setattr(framing, "EARNEST_BYTES", 300)
    monkeypatch.setattr(framing, "HELD_BYTES_MIN", 4096)
    monkeypatch.setattr(framing, "SPARE_ARENAS_MAX", 2)
    monkeypatch.setattr(framing, "SPARE_BYTES_MAX", 1024)


def framed(payload):
    return struct.pack(">i", len(payload)) + payload


class Wire:
    """One connection: its bytes still to come, and what has been read of them."""

    def __init__(self, pool, payloads):
        self.reader = FrameReader(pool, SIZE_MAX)
        self.left = b"".join(map(framed, payloads))
        self.held = []  # frames not yet unpinned, with what they must hold
        self.payloads = payloads
        self.count = 0

    def step(self, wanted):
        """The socket gives up to `wanted` bytes."""
        target = self.reader.target()
        assert len(target) > 0
        size = min(wanted, len(target), len(self.left))
        target[:size] = self.left[:size]
        self.left = self.left[size:]
        for chunk, start, end in self.reader.received(size):
            assert bytes(chunk.view[start:end]) == self.payloads[self.count]
            self.held.append((chunk, start, end, self.payloads[self.count]))
            self.count += 1

    def let_go(self, count):
        for chunk, start, end, payload in self.held[:count]:
            assert bytes(chunk.view[start:end]) == payload  # nobody wrote over it while it was pinned
            chunk.unpin()
        del self.held[:count]


PAYLOADS = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.binary(min_size=40, max_size=90),
        st.sampled_from([100, 500, 513, 4096, 4097, 9000]).map(lambda size: bytes(i % 251 for i in range(size))),
    ),
    max_size=8,
)
PIECES = st.integers(1, 80) | st.integers(300, 5000)


@settings(max_examples=150, deadline=None)
@given(payloads=PAYLOADS, sizes=st.lists(PIECES, min_size=1, max_size=20), hold=st.integers(0, 4))
def test_a_stream_split_anywhere_gives_the_same_frames(payloads, sizes, hold):
    pool = ChunkPool()
    wire = Wire(pool, payloads)
    for wanted in itertools.cycle(sizes):
        if not wire.left:
            break
        wire.step(wanted)
        wire.let_go(max(0, len(wire.held) - hold))
        if not wire.held:
            pool.end_of_turn()
    assert wire.count == len(payloads)
    assert not wire.reader.unfinished
    assert wire.reader.held == 0
    wire.let_go(len(wire.held))
    assert pool.arena.pins == 0
    assert wire.reader.error is None


@settings(max_examples=100, deadline=None)
@given(
    streams=st.lists(PAYLOADS, min_size=2, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 3), PIECES, st.integers(0, 3)), min_size=1, max_size=60),
    left_over=st.booleans(),
)
def test_readers_that_share_a_pool_never_write_into_each_others_frames(streams, steps, left_over):
    pool = ChunkPool()
    wires = [Wire(pool, payloads) for payloads in streams]
    seen: set[Chunk] = set()
    for number, wanted, gone in steps:
        wire = wires[number % len(wires)]
        wire.step(wanted)
        seen.add(pool.arena)
        seen.update(chunk for chunk, *_ in wire.held)
        wire.let_go(gone)
        pool.end_of_turn()
    if not left_over:
        while any(wire.left for wire in wires):
            for wire in wires:
                wire.step(2000)
                seen.update(chunk for chunk, *_ in wire.held)
        assert [wire.count for wire in wires] == [len(wire.payloads) for wire in wires]
    for wire in wires:
        wire.let_go(len(wire.held))
        wire.reader.close()
    assert [chunk.pins for chunk in seen] == [0] * len(seen)


@settings(max_examples=60, deadline=None)
@given(payload=st.binary(max_size=40), other=st.binary(min_size=1, max_size=30))
def test_every_split_of_two_frames_into_three_reads_parses_alike(payload, other):
    whole = framed(payload) + framed(other)
    for first in range(0, len(whole) + 1, 3):
        for second in range(first, len(whole) + 1, 7):
            wire = Wire(ChunkPool(), [payload, other])
            for piece in (whole[:first], whole[first:second], whole[second:]):
                wire.left = piece
                while wire.left:
                    wire.step(1000)
            assert wire.count == 2


def test_a_frame_within_one_read_is_not_copied():
    pool = ChunkPool()
    wire = Wire(pool, [b"abc", b"", b"de"])
    wire.step(64)
    assert [(chunk, start, end) for chunk, start, end, _ in wire.held] == [
        (pool.arena, 4, 7),
        (pool.arena, 11, 11),
        (pool.arena, 15, 17),
    ]
    assert pool.arena.pins == 3


# ── memory is used again ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_arena_that_is_full_but_pinned_is_retired_and_comes_back():
    pool = ChunkPool()
    first = pool.arena
    wire = Wire(pool, [b"x" * 30] * 12)
    while wire.left and pool.arena is first:
        wire.step(34)
    assert first.retired
    assert first.pins == sum(chunk is first for chunk, *_ in wire.held) == 7
    wire.let_go(len(wire.held))
    assert not first.retired
    pool.arena.used = 256
    pool.arena.pins += 1
    assert pool.room() is first
    assert first.used == 0


def test_an_arena_nobody_pins_is_used_from_its_beginning_again():
    pool = ChunkPool()
    arena = pool.arena
    wire = Wire(pool, [b"x" * 40] * 50)
    while wire.left:
        wire.step(44)
        wire.let_go(1)
    assert pool.arena is arena
    pool.end_of_turn()
    assert arena.used == 0


def test_an_arena_is_not_wound_back_at_the_end_of_a_turn_while_a_frame_in_it_is_pinned():
    pool = ChunkPool()
    wire = Wire(pool, [b"abcd"])
    wire.step(8)
    pool.end_of_turn()
    assert pool.arena.used == 8
    wire.let_go(1)
    pool.end_of_turn()
    assert pool.arena.used == 0


def test_the_chunk_of_a_large_frame_is_used_for_the_next_one():
    pool = ChunkPool()
    chunks = []
    for _ in range(3):
        wire = Wire(pool, [b"y" * 300])
        while wire.left:
            wire.step(64)
        chunks.append(wire.held[0][0])
        assert len(chunks[-1].data) == 512
        wire.let_go(1)
    assert chunks[0] is chunks[1] is chunks[2]


def test_spare_memory_is_bounded():
    pool = ChunkPool()
    wires = [Wire(pool, [b"z" * 400]) for _ in range(9)]
    for wire in wires:
        while wire.left:
            wire.step(64)
    for wire in wires:
        wire.let_go(1)
    spare = sum(len(c.data) for group in pool._big.values() for c in group)
    assert 0 < spare <= framing.SPARE_BYTES_MAX
    assert len(pool._spare) <= framing.SPARE_ARENAS_MAX


def test_a_connection_closed_in_the_middle_of_a_frame_gives_its_memory_back():
    pool = ChunkPool()
    wire = Wire(pool, [b"w" * 300])
    for _ in range(3):
        wire.step(64)
    chunk = wire.reader._frame
    assert wire.reader.unfinished
    wire.reader.close()
    wire.reader.close()
    assert chunk.pins == 0
    assert not wire.reader.unfinished
    assert any(chunk in group for group in pool._big.values())


# ── lengths that are lies ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("length", [-1, -(1 << 31), SIZE_MAX + 1, (1 << 31) - 1])
def test_a_length_that_no_frame_can_have_is_an_error(length):
    reader = FrameReader(ChunkPool(), SIZE_MAX)
    reader.target()[:4] = struct.pack(">i", length)
    assert reader.received(4) == []
    assert str(length) in reader.error
    assert str(SIZE_MAX) in reader.error


def test_the_largest_frame_is_taken():
    reader = FrameReader(ChunkPool(), 100)
    reader.target()[:4] = struct.pack(">i", 100)
    assert reader.received(4) == []
    assert reader.error is None


@pytest.mark.parametrize("split", [0, 2])
def test_frames_before_a_bad_length_are_kept(split):
    pool = ChunkPool()
    reader, other = FrameReader(pool, SIZE_MAX), FrameReader(pool, SIZE_MAX)
    data = framed(b"good") + framed(b"fine") + struct.pack(">i", -5) + b"junk"
    frames = []
    for piece in (data[:split], data[split:]):
        reader.target()[: len(piece)] = piece
        frames += reader.received(len(piece))
    assert "-5" in reader.error
    target = other.target()
    target[:] = b"#" * len(target)
    assert [bytes(chunk.view[start:end]) for chunk, start, end in frames] == [b"good", b"fine"]
    for chunk, _, _ in frames:
        chunk.unpin()
    reader.close()
    assert pool.arena.pins == 0


def test_a_length_that_is_a_lie_costs_no_memory(monkeypatch):
    monkeypatch.undo()
    pool = ChunkPool()
    readers = [FrameReader(pool, 100 << 20) for _ in range(50)]
    tracemalloc.start()
    try:
        for reader in readers:
            reader.target()[:4] = struct.pack(">i", 100 << 20)
            reader.received(4)
            reader.target()[:10] = b"0123456789"
            reader.received(10)
            assert reader.unfinished
            assert reader.held == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= len(readers) * 10_000


def test_a_large_frame_grows_with_what_arrives(monkeypatch):
    monkeypatch.undo()
    reader = FrameReader(ChunkPool(), 100 << 20)
    reader.target()[:4] = struct.pack(">i", 50 << 20)
    reader.received(4)
    have = 0
    chunks = []
    while have < 5 << 20:
        size = min(len(reader.target()), 100_000)
        chunks += [reader._frame] if reader._frame not in chunks else []
        have += size
        assert reader.received(size) == []
        room = len(reader._frame.data)
        if room > framing.MAPPED_BYTES_MIN:  # all of it at once, and none of it is memory before it is written to
            assert (room, reader.held) == (50 << 20, have)
            continue
        assert room <= max(4096, 4 * have, framing.FIRST_BUFFER_BYTES if have >= framing.EARNEST_BYTES else 0)
        assert reader.held == (room if room > framing.HELD_BYTES_MIN else 0)
    assert len(reader._frame.data) == 50 << 20
    assert len(chunks) > 2
    assert [chunk.pins for chunk in chunks] == [0] * (len(chunks) - 1) + [1]  # those that became too small are free
    reader.close()
    assert reader.held == chunks[-1].pins == 0


@settings(max_examples=150, deadline=None)
@given(
    payloads=PAYLOADS,
    sizes=st.lists(PIECES, min_size=1, max_size=20),
    per_cut=st.sampled_from([1, 2, 3]),
    handled=st.lists(st.integers(0, 3), min_size=1, max_size=10),
)
def test_frames_that_must_wait_come_later_in_their_order_and_leave_the_arena_to_others(
    payloads, sizes, per_cut, handled
):
    """After some of the frames that were cut the rest is put back, time and again; another connection reads meanwhile,
    over whatever of the arena is not pinned."""
    was, framing.FRAMES_PER_CUT = framing.FRAMES_PER_CUT, per_cut
    pool = ChunkPool()
    wire, other = Wire(pool, payloads), FrameReader(pool, SIZE_MAX)
    reader, seen = wire.reader, []
    handles = itertools.cycle(handled) if any(handled) else itertools.repeat(1)

    def serve(frames):
        count = next(handles)
        for chunk, start, end in frames[:count]:
            seen.append(bytes(chunk.view[start:end]))
            chunk.unpin()
        if count < len(frames) or reader.waiting:
            reader.keep(min(count, len(frames)))
        pool.end_of_turn()
        target = other.target()
        target[:] = b"#" * len(target)

    try:
        for wanted in itertools.cycle(sizes):
            if not wire.left:
                break
            target = reader.target()
            size = min(wanted, len(target), len(wire.left))
            target[:size] = wire.left[:size]
            wire.left = wire.left[size:]
            serve(reader.received(size))
            while reader.waiting:
                serve(reader.cut())
    finally:
        framing.FRAMES_PER_CUT = was
    assert seen == payloads
    assert reader.held == 0
    assert not reader.unfinished
    assert pool.arena.pins == 0


def test_no_more_frames_are_cut_at_a_time_than_the_bound(monkeypatch):
    monkeypatch.undo()
    pool = ChunkPool()
    reader = FrameReader(pool, SIZE_MAX)
    data = framed(b"") * 1000
    reader.target()[: len(data)] = data
    counts = [len(reader.received(len(data)))]
    while reader.waiting:
        counts.append(len(reader.cut()))
    assert max(counts) == framing.FRAMES_PER_CUT
    assert sum(counts) == 1000


def test_what_waits_counts_as_held_and_is_let_go(monkeypatch):
    monkeypatch.undo()
    pool = ChunkPool()
    reader = FrameReader(pool, SIZE_MAX)
    data = framed(b"x" * 1000) * 100
    reader.target()[: len(data)] = data
    reader.received(len(data))
    reader.keep(0)
    assert len(data) <= reader.held <= 2 * len(data)
    assert pool.arena.pins == 0
    reader.cut()
    reader.drop(0)
    assert reader.held == 0
    assert not reader.waiting


@pytest.mark.parametrize("size", [1, 2, 3, 4, 200])
def test_a_frame_is_unfinished_from_its_first_byte_to_its_last(size):
    reader = FrameReader(ChunkPool(), SIZE_MAX)
    data = framed(bytes(200))[:size]
    reader.target()[: min(size, 64)] = data[:64]
    reader.received(min(size, 64))
    assert reader.unfinished


def test_a_frame_that_waits_is_moved_into_memory_of_its_own():
    pool = ChunkPool()
    wire = Wire(pool, [b"one", b"", b"three"])
    wire.step(64)
    waiting = [pool.own((chunk, start, end)) for chunk, start, end, _ in wire.held]
    assert pool.arena.pins == 0
    pool.arena.view[:] = bytes(len(pool.arena.data))
    assert [bytes(chunk.view[start:end]) for chunk, start, end in waiting] == wire.payloads
    assert [(chunk.pins, len(chunk.data)) for chunk, _, _ in waiting] == [(1, 3), (1, 0), (1, 5)]
    for chunk, _, _ in waiting:
        chunk.unpin()
    assert pool._spare == []
