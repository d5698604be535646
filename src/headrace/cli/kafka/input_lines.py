"""Lines of an input as they come. While none comes, something else is done: an idle writer still hears its broker.

One thread does both, so what is said about a record and the prompt for the next one never mix.
"""

import os
import select
from collections.abc import Callable, Iterator
from typing import IO

CHUNK_BYTES = 1 << 16
QUIET_S = 0.1


def input_lines(source: IO[bytes], goes_on: Callable[[], bool], line_bytes_max: int | None = None) -> Iterator[bytes]:
    """Lines without their ends, until the input is over or `goes_on`, asked whenever the input is quiet, says no.

    A line that is longer than the bound is yielded as far as it was read, so that its reader can refuse it.
    """
    try:
        number = source.fileno()
    except OSError:  # it lies in memory: it is never quiet
        yield from (line.removesuffix(b"\n").removesuffix(b"\r") for line in source)
        return
    rest = bytearray()
    while True:
        while not select.select([number], [], [], QUIET_S)[0]:
            if not goes_on():
                return
        data = os.read(number, CHUNK_BYTES)
        if not data:
            break
        whole, newline, begun = data.rpartition(b"\n")
        if newline:
            for line in (bytes(rest) + whole).split(b"\n"):
                yield line.removesuffix(b"\r")
            rest.clear()
        rest += begun
        if line_bytes_max is not None and len(rest) > line_bytes_max:
            break
    if rest:
        yield bytes(rest).removesuffix(b"\r")
