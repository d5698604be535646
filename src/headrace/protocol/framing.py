"""Bytes in, frames out: Kafka's 4-byte length, then so many bytes.

A frame is handed on as (buffer, start, end) without a copy. Small frames are parsed where they were received, in an
arena that all connections of one loop share; a frame of which only a part has come gets a buffer of its own, which
grows with what really arrives, so that a length that is a lie costs nothing. No socket is touched here.
"""

from struct import Struct
from typing import Final

LENGTH: Final = Struct(">i")
LENGTH_BYTES: Final = 4
ARENA_BYTES: Final = 2 << 20
ROOM_BYTES_MIN: Final = 64 << 10  # a read gets at least this much room; below it, the arena is changed
READ_BYTES_MAX: Final = 512 << 10
FIRST_BUFFER_BYTES: Final = 1 << 20
EARNEST_BYTES: Final = 16 << 10  # who has sent this much of a frame is believed to send the rest
HELD_BYTES_MIN: Final = 64 << 10  # smaller unfinished frames do not count as held
SPARE_ARENAS_MAX: Final = 4
SPARE_BYTES_MAX: Final = 8 << 20


class Chunk:
    """A piece of memory that frames lie in. It is used again only when nobody pins it any more."""

    __slots__ = ("data", "pins", "pool", "retired", "used", "view")

    def __init__(self, size: int, pool: "ChunkPool | None") -> None:
        self.data = bytearray(size)
        self.view = memoryview(self.data)
        self.used = 0
        self.pins = 0
        self.retired = False
        self.pool = pool

    def unpin(self) -> None:
        self.pins -= 1
        if self.pins == 0 and self.retired and self.pool is not None:
            self.pool.take_back(self)


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
        """A chunk of its own for a large frame, its size rounded up so that it fits others later."""
        rounded = 1 << (size - 1).bit_length() if size <= ARENA_BYTES else -(-size // ARENA_BYTES) * ARENA_BYTES
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
    """Cuts one connection's bytes into frames. Ask `target()` where to read to, then tell `received(n)`."""

    __slots__ = (
        "_carry",
        "_frame",
        "_have",
        "_pool",
        "_read_chunk",
        "_read_start",
        "_size",
        "_size_max",
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
        self.held = 0  # bytes of memory that an unfinished large frame takes
        self._read_chunk: Chunk = pool.arena
        self._read_start = 0
        self.frames: list[tuple[Chunk, int, int]] = []
        self.error: str | None = None  # a length that no frame can have: nothing more can be read

    @property
    def unfinished(self) -> bool:
        """True when a part of a frame has come, and not the rest."""
        return self._frame is not None or bool(self._carry)

    def target(self) -> memoryview:
        """Where the next bytes of the socket go."""
        frame = self._frame
        if frame is not None:
            if self._have == len(frame.data):
                frame = self._grow(frame)
            return frame.view[self._have : self._size]
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
        return chunk.view[start : start + READ_BYTES_MAX]

    def _grow(self, old: Chunk) -> Chunk:
        wanted = max(2 * len(old.data), FIRST_BUFFER_BYTES if self._have >= EARNEST_BYTES else 0)
        new = self._pool.big(min(self._size, wanted))
        new.view[: self._have] = old.view[: self._have]
        new.pins = 1
        self._frame = new
        self._hold(new)
        old.unpin()
        return new

    def _hold(self, chunk: Chunk) -> None:
        size = len(chunk.data)
        self.held = size if size > HELD_BYTES_MIN else 0

    def received(self, count: int) -> list[tuple[Chunk, int, int]]:
        """The frames that are whole now; each pins its chunk, and whoever handles it must unpin it."""
        frames = self.frames
        frames.clear()
        frame = self._frame
        if frame is not None:
            self._have += count
            if self._have == self._size:
                self._frame = None
                self.held = 0
                frames.append((frame, 0, self._size))  # the pin it had goes along
            return frames
        chunk = self._read_chunk
        at = self._read_start
        end = at + len(self._carry) + count
        view = chunk.view
        while end - at >= LENGTH_BYTES:
            size = LENGTH.unpack_from(view, at)[0]
            if size < 0 or size > self._size_max:
                self.error = f"a frame of {size} bytes is outside [0, {self._size_max}]"
                chunk.used = at
                return frames
            stop = at + LENGTH_BYTES + size
            if stop > end:
                self._begin_partial(view[at + LENGTH_BYTES : end], size)
                self._carry = b""
                chunk.used = at
                return frames
            chunk.pins += 1
            frames.append((chunk, at + LENGTH_BYTES, stop))
            at = stop
        self._carry = bytes(view[at:end]) if at < end else b""
        chunk.used = at
        return frames

    def _begin_partial(self, have: memoryview, size: int) -> None:
        wanted = FIRST_BUFFER_BYTES if len(have) >= EARNEST_BYTES else max(2 * len(have), 4096)
        frame = self._pool.big(max(1, min(size, max(wanted, len(have)))))
        frame.view[: len(have)] = have
        frame.pins = 1
        self._frame = frame
        self._size = size
        self._have = len(have)
        self._hold(frame)

    def close(self) -> None:
        if self._frame is not None:
            self._frame.unpin()
            self._frame = None
            self.held = 0
