"""Bytes in, frames out: Kafka's 4-byte length, then so many bytes.

A frame is handed on as (buffer, start, end) without a copy. Small frames are parsed where they were received, in an
arena that all connections of one loop share; a frame of which only a part has come gets a buffer of its own, which
grows with what really arrives, so that a length that is a lie costs nothing. One read may hold thousands of frames:
they are cut a few at a time, and what must wait is kept in memory of its own. No socket is touched here.
"""

import mmap
from struct import Struct
from typing import Final

LENGTH: Final = Struct(">i")
LENGTH_BYTES: Final = 4
ARENA_BYTES: Final = 2 << 20
ROOM_BYTES_MIN: Final = 64 << 10  # a read gets at least this much room; below it, the arena is changed
READ_BYTES_MAX: Final = 512 << 10
FIRST_BUFFER_BYTES: Final = 1 << 20
EARNEST_BYTES: Final = 16 << 10  # who has sent this much of a frame is believed to send the rest
HELD_BYTES_MIN: Final = 4 << 10  # less than this does not count as held
MAPPED_BYTES_MIN: Final = 2 << 20  # a larger buffer is a mapping of its own: what has not come takes no memory
FRAMES_PER_CUT: Final = 64
SPARE_ARENAS_MAX: Final = 4
SPARE_BYTES_MAX: Final = 8 << 20


class Chunk:
    """A piece of memory that frames lie in. It is used again only when nobody pins it any more."""

    __slots__ = ("data", "pins", "pool", "retired", "used", "view")

    def __init__(self, size: int, pool: "ChunkPool | None", mapped: bool = False) -> None:
        self.data: bytearray | mmap.mmap = _mapping(size) if mapped else bytearray(size)
        self.view = memoryview(self.data)
        self.used = 0
        self.pins = 0
        self.retired = False
        self.pool = pool

    def unpin(self) -> None:
        self.pins -= 1
        if self.pins == 0 and self.retired and self.pool is not None:
            self.pool.take_back(self)


def _mapping(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class ChunkPool:
    """The arena of the present, and spare chunks, up to a bound."""

    __slots__ = ("_big", "_big_bytes", "_spare", "arena")

    def __init__(self) -> None:
        self._spare: list[Chunk] = []
        self._big: dict[int, list[Chunk]] = {}
        self._big_bytes = 0
        self.arena = Chunk(ARENA_BYTES, self)

    def room(self) -> Chunk:
        """The arena, with room for a read."""
        arena = self.arena
        if ARENA_BYTES - arena.used >= ROOM_BYTES_MIN:
            return arena
        if arena.pins == 0:
            arena.used = 0
            return arena
        arena.retired = True
        self.arena = arena = self._spare.pop() if self._spare else Chunk(ARENA_BYTES, self)
        return arena

    def end_of_turn(self) -> None:
        """What nobody pins is free again: the same warm memory serves the next turn."""
        if self.arena.pins == 0:
            self.arena.used = 0

    def big(self, size: int) -> Chunk:
        """A chunk of its own, its size rounded up so that it fits others later."""
        rounded = 1 << (size - 1).bit_length()
        spare = self._big.get(rounded)
        if spare:
            self._big_bytes -= rounded
            return spare.pop()
        chunk = Chunk(rounded, self)
        chunk.retired = True
        return chunk

    def own(self, frame: tuple[Chunk, int, int]) -> tuple[Chunk, int, int]:
        """The frame in memory of its own, where it may wait without keeping a whole arena from being used again."""
        chunk, start, end = frame
        copy = Chunk(end - start, None)
        copy.view[:] = chunk.view[start:end]
        copy.pins = 1
        chunk.unpin()
        return copy, 0, end - start

    def take_back(self, chunk: Chunk) -> None:
        size = len(chunk.data)
        if size == ARENA_BYTES and len(self._spare) < SPARE_ARENAS_MAX:
            chunk.retired = False
            chunk.used = 0
            self._spare.append(chunk)
        elif self._big_bytes + size <= SPARE_BYTES_MAX:
            chunk.retired = True
            self._big.setdefault(size, []).append(chunk)
            self._big_bytes += size


class FrameReader:
    """Cuts one connection's bytes into frames. Ask `target()` where to read to, then tell `received(n)`; while it has
    frames `waiting`, take them with `cut()` before more is read."""

    __slots__ = (
        "_at",
        "_bytes_max",
        "_carry",
        "_end",
        "_frame",
        "_have",
        "_is_own",
        "_kept",
        "_pool",
        "_read_chunk",
        "_read_start",
        "_size",
        "_size_max",
        "_uncut",
        "error",
        "frames",
        "held",
    )

    def __init__(self, pool: ChunkPool, size_max: int) -> None:
        self._pool = pool
        self._size_max = size_max
        self._carry = b""  # fewer than four bytes: a length not yet whole
        self._frame: Chunk | None = None  # the frame that has come in part, in a chunk of its own
        self._size = 0
        self._have = 0
        self._uncut: Chunk | None = None  # pinned: it holds bytes that were received and not cut into frames
        self._at = 0  # where those begin
        self._end = 0
        self._is_own = False  # they lie in a chunk that nobody else uses
        self._bytes_max = 0  # of this read, if memory is short
        self._kept: Chunk | None = None  # a whole large frame that must wait
        self.held = 0  # bytes of memory that unfinished and waiting frames take
        self._read_chunk: Chunk = pool.arena
        self._read_start = 0
        self.frames: list[tuple[Chunk, int, int]] = []
        self.error: str | None = None  # a length that no frame can have: nothing more can be read

    @property
    def unfinished(self) -> bool:
        """True when a part of a frame has come, and not the rest."""
        return self._frame is not None or bool(self._carry)

    @property
    def waiting(self) -> bool:
        """True when there is something to `cut`."""
        return self._uncut is not None or self._kept is not None

    def target(self, bytes_max: int = 0) -> memoryview:
        """Where the next bytes of the socket go. `bytes_max`: memory is short, and no more than this may be read."""
        self._bytes_max = bytes_max
        room = min(bytes_max, READ_BYTES_MAX) if bytes_max else READ_BYTES_MAX
        frame = self._frame
        if frame is not None:
            if self._have == len(frame.data):
                frame = self._grow(frame)
            return frame.view[self._have : min(self._size, self._have + room)]
        chunk = self._pool.arena
        if ARENA_BYTES - chunk.used < ROOM_BYTES_MIN:
            chunk = self._pool.room()
        start = chunk.used
        carry = self._carry
        if carry:
            chunk.view[start : start + len(carry)] = carry
        self._read_chunk = chunk
        self._read_start = start
        start += len(carry)
        return chunk.view[start : start + room]

    def _grow(self, old: Chunk) -> Chunk:
        wanted = max(2 * len(old.data), self._first_buffer(self._have))
        if wanted > MAPPED_BYTES_MIN:
            new = Chunk(self._size, None, True)
        else:
            new = self._pool.big(min(self._size, wanted))
        new.view[: self._have] = old.view[: self._have]
        new.pins = 1
        self._frame = new
        old.unpin()
        return new

    def _first_buffer(self, have: int) -> int:
        return FIRST_BUFFER_BYTES if have >= EARNEST_BYTES and not self._bytes_max else 0

    def _count_held(self) -> None:
        held = 0
        frame = self._frame
        if frame is not None:
            size = len(frame.data)
            held += self._have if size > MAPPED_BYTES_MIN else size if size > HELD_BYTES_MIN else 0
        if self._kept is not None:
            held += self._size
        if self._uncut is not None and self._is_own:
            size = len(self._uncut.data)
            held += size if size > HELD_BYTES_MIN else 0
        self.held = held

    def received(self, count: int) -> list[tuple[Chunk, int, int]]:
        """The first frames that are whole now; each pins its chunk, and whoever handles it must unpin it."""
        frames = self.frames
        frames.clear()
        frame = self._frame
        if frame is not None:
            self._have += count
            if self._have == self._size:
                self._frame = None
                self.held = 0
                frames.append((frame, 0, self._size))  # the pin it had goes along
            else:
                self._count_held()
            return frames
        at = self._read_start
        end = at + len(self._carry) + count
        self._carry = b""
        self._is_own = False
        self._read_chunk.used = self._cut_between(self._read_chunk, at, end)
        return frames

    def cut(self) -> list[tuple[Chunk, int, int]]:
        """The next frames of what was received before."""
        frames = self.frames
        frames.clear()
        chunk = self._kept
        if chunk is not None:
            self._kept = None
            frames.append((chunk, 0, self._size))
            self._count_held()
            return frames
        chunk = self._uncut
        if chunk is not None:
            self._uncut = None
            self._cut_between(chunk, self._at, self._end)
            chunk.unpin()  # after those who need it have pinned it
            self._count_held()
        return frames

    def _cut_between(self, chunk: Chunk, at: int, end: int) -> int:
        """Returns where the bytes end that somebody still needs."""
        frames = self.frames
        view = chunk.view
        for _ in range(FRAMES_PER_CUT):
            if end - at < LENGTH_BYTES:
                if at < end:
                    self._carry = bytes(view[at:end])
                return at
            size: int = LENGTH.unpack_from(view, at)[0]
            if size < 0 or size > self._size_max:
                self.error = f"a frame of {size} bytes is outside [0, {self._size_max}]"
                return at
            stop = at + LENGTH_BYTES + size
            if stop > end:
                self._begin_partial(view[at + LENGTH_BYTES : end], size)
                return at
            chunk.pins += 1
            frames.append((chunk, at + LENGTH_BYTES, stop))
            at = stop
        if at == end:
            return at
        chunk.pins += 1
        self._uncut = chunk
        self._at = at
        self._end = end
        return end

    def keep(self, index: int) -> None:
        """The frames from this one on, and what is not cut yet, wait; not in the arena, which others need."""
        frames = self.frames
        at = self._at
        if index < len(frames):
            chunk, start, _ = frames[index]
            if start == 0:  # a frame in a chunk of its own
                self._kept = chunk
                frames.clear()
                self._count_held()
                return
            at = start - LENGTH_BYTES
            if self._uncut is None:
                self._uncut = chunk
                self._end = frames[-1][2]
                chunk.pins += 1
            chunk.pins -= len(frames) - index  # not the last pins: `_uncut` has one
        frames.clear()
        uncut = self._uncut
        if uncut is not None and not self._is_own:
            own = self._pool.big(self._end - at)
            own.view[: self._end - at] = uncut.view[at : self._end]
            own.pins = 1
            uncut.unpin()
            self._uncut = own
            self._end -= at
            at = 0
            self._is_own = True
        self._at = at
        self._count_held()

    def drop(self, index: int) -> None:
        """The frames from this one on, and all that waits, are not wanted any more."""
        for chunk, _, _ in self.frames[index:]:
            chunk.unpin()
        self.frames.clear()
        self.drop_waiting()

    def drop_waiting(self) -> None:
        if self._uncut is not None:
            self._uncut.unpin()
            self._uncut = None
        if self._kept is not None:
            self._kept.unpin()
            self._kept = None
        self._count_held()

    def _begin_partial(self, have: memoryview, size: int) -> None:
        wanted = max(2 * len(have), 4096, self._first_buffer(len(have)))
        frame = self._pool.big(max(1, min(size, max(wanted, len(have)))))
        frame.view[: len(have)] = have
        frame.pins = 1
        self._frame = frame
        self._size = size
        self._have = len(have)
        self._count_held()

    def close(self) -> None:
        if self._frame is not None:
            self._frame.unpin()
            self._frame = None
        self.drop_waiting()  # not `frames`: who handles those now lets go of them
