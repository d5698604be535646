import mmap

def walk(
    data: bytes | bytearray | memoryview | mmap.mmap,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    oldest: int,
    newest: int,
    rules: int,
    /,
) -> int | tuple[int, int, int, int, tuple[tuple[int, int | None], ...]]: ...
