"""Lines as they come, from a pipe that may be quiet in the middle of one."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.kafka import input_lines as module
from headrace.cli.kafka.input_lines import input_lines

Pipe = tuple[IO[bytes], int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb") as source:
        yield source, writes


def never() -> bool:
    raise AssertionError("the input was not quiet")


def test_line_ends_are_taken_off_and_the_last_line_needs_none(pipe: Pipe) -> None:
    source, writes = pipe
    os.write(writes, b"one\r\ntwo\n\nfo\rur")
    os.close(writes)
    assert list(input_lines(source, never)) == [b"one", b"two", b"", b"fo\rur"]


@given(data=st.binary(max_size=60).map(lambda data: data.replace(b"\r", b"")), size=st.integers(1, 7))
def test_lines_do_not_depend_on_how_they_are_cut(data: bytes, size: int) -> None:
    reads, writes = os.pipe()
    os.write(writes, data)
    os.close(writes)
    with os.fdopen(reads, "rb") as source, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", size)
        found = list(input_lines(source, never))
    assert found == [line.removesuffix(b"\n") for line in io.BytesIO(data)]


def test_a_quiet_input_asks_whether_to_go_on_and_loses_no_part_of_a_line(pipe: Pipe) -> None:
    source, writes = pipe
    parts = [b"a wh", b"ole line\n", None]

    def goes_on() -> bool:
        part = parts.pop(0)
        if part is None:
            return False
        os.write(writes, part)
        return True

    assert list(input_lines(source, goes_on)) == [b"a whole line"]
    os.close(writes)


def test_a_line_without_end_is_given_up(pipe: Pipe) -> None:
    source, writes = pipe
    os.write(writes, b"x" * 100)
    (line,) = input_lines(source, never, 10)
    assert len(line) > 10
    os.close(writes)


def test_an_input_in_memory_is_read_to_its_end() -> None:
    assert list(input_lines(io.BytesIO(b"a\r\nb"), never)) == [b"a", b"b"]
