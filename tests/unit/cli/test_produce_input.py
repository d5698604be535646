from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.cli import produce_input
from headrace.cli.produce_input import InputFormat, Outgoing, records, total_bytes
from headrace.core.errors import OperatorError


def made(form: InputFormat, *contents: bytes, tmp_path: Path) -> list[Outgoing]:
    paths = []
    for number, content in enumerate(contents):
        path = tmp_path / f"input-{number}"
        path.write_bytes(content)
        paths.append(str(path))
    return list(records(form, paths))


def test_each_line_is_a_value_without_its_end(tmp_path: Path) -> None:
    found = made(InputFormat(), b"a\r\n\nlast", tmp_path=tmp_path)
    assert [each.value for each in found] == [b"a", b"", b"last"]
    assert [each.line for each in found] == [1, 2, 3]
    assert found[2].where == f"{tmp_path}/input-0:3"


def test_an_empty_line_can_be_no_value(tmp_path: Path) -> None:
    form = InputFormat(empty_is_null=True, key_separator=b"=")
    assert [(each.key, each.value) for each in made(form, b"k=v\nk=\n", tmp_path=tmp_path)] == [
        (b"k", b"v"),
        (b"k", None),
    ]


def test_a_key_stands_before_the_separator_and_a_line_without_it_is_named(tmp_path: Path) -> None:
    (first,) = made(InputFormat(key_separator=b":"), b"k:v:w\n", tmp_path=tmp_path)
    assert (first.key, first.value) == (b"k", b"v:w")
    with pytest.raises(OperatorError, match=r"input-0:2: no ':' in it"):
        made(InputFormat(key_separator=b":"), b"k:v\nno key\n", tmp_path=tmp_path)


def test_json_lines_are_checked_and_may_hold_their_key(tmp_path: Path) -> None:
    form = InputFormat(kind="json", key_field=("customer", "id"))
    (first, second) = made(form, b'{"customer": {"id": 5}}\n\n{"customer": {"id": "x"}}\n', tmp_path=tmp_path)
    assert (first.key, first.value) == (b"5", b'{"customer": {"id": 5}}')
    assert (second.key, second.line) == (b"x", 3)
    with pytest.raises(OperatorError, match=r"input-0:1: it has no field customer.id"):
        made(form, b"{}\n", tmp_path=tmp_path)
    with pytest.raises(OperatorError, match=r"input-0:2: not JSON: .* at column 2; use --format lines"):
        made(form, b'{"customer": {"id": 5}}\n{broken\n', tmp_path=tmp_path)


def test_records_carry_key_headers_and_time(tmp_path: Path) -> None:
    line = b'{"key": "k", "value": {"a": 1}, "headers": {"h": ["1", null]}, "timestamp": 9, "partition": 3}\n'
    form = InputFormat(kind="records", headers=(("x", b"y"),))
    (found,) = made(form, line, tmp_path=tmp_path)
    assert found[:5] == (b'{"a":1}', b"k", [("x", b"y"), ("h", b"1"), ("h", None)], -1, 9)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"5", "not a record"),
        (b"{}", "not a record"),
        (b'{"value": 1, "headers": []}', None),
        (b'{"value": 1, "headers": [1]}', "headers must be an object"),
        (b'{"value": 1, "timestamp": "now"}', "timestamp and partition numbers"),
        (b'{"value_base64": "?"}', "base64 is expected"),
    ],
)
def test_what_is_no_record_is_named_with_its_line(line: bytes, said: str | None, tmp_path: Path) -> None:
    form = InputFormat(kind="records")
    if said is None:
        assert len(made(form, line, tmp_path=tmp_path)) == 1
        return
    with pytest.raises(OperatorError, match=f"input-0:1: .*{said}"):
        made(form, line, tmp_path=tmp_path)


def test_a_whole_file_is_one_value(tmp_path: Path) -> None:
    found = made(InputFormat(kind="file", key=b"k"), b"a\nb\n", b"c", tmp_path=tmp_path)
    assert [(each.key, each.value) for each in found] == [(b"k", b"a\nb\n"), (b"k", b"c")]
    assert found[0].where == f"{tmp_path}/input-0"


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no such file or directory; give a file"):
        list(records(InputFormat(), [str(tmp_path / "nothing")]))


def test_standard_input_is_read_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO(b"a\nb\n")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=buffer))
    assert [each.where for each in records(InputFormat(), ())] == ["stdin:1", "stdin:2"]
    assert not buffer.closed


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(produce_input, "LINE_BYTES_MAX", 10)
    with pytest.raises(OperatorError, match="longer than 10 bytes; use --format file"):
        made(InputFormat(), b"x" * 11, tmp_path=tmp_path)


def test_how_much_there_is_is_known_for_files_only(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert total_bytes([str(tmp_path / "a"), str(tmp_path / "a")]) == 10
    assert total_bytes([str(tmp_path)]) is None
    assert total_bytes([str(tmp_path / "nothing")]) is None
