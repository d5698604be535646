from __future__ import annotations

import pytest

from headrace.cli.kafka.message_formats import PrintedRecord, format_named
from headrace.cli.kafka.tool import ToolError

RECORD = PrintedRecord("t", 3, 9, "CreateTime", 1234, b"k", b"v", [("a", b"1"), ("b", None)])
EVERYTHING = {f"print.{what}": "true" for what in ("timestamp", "partition", "offset", "headers", "key")}


def test_parts_stand_in_kafkas_order() -> None:
    shape = format_named("kafka.tools.DefaultMessageFormatter", EVERYTHING)
    assert shape(RECORD) == b"CreateTime:1234\tPartition:3\tOffset:9\ta:1,b:null\tk\tv\n"


def test_what_is_absent_has_a_name() -> None:
    shape = format_named("DefaultMessageFormatter", EVERYTHING | {"null.literal": "-", "key.separator": "|"})
    bare = RECORD._replace(timestamp_type=None, key=None, value=None, headers=[])
    assert shape(bare) == b"NO_TIMESTAMP|Partition:3|Offset:9|NO_HEADERS|-|-\n"


def test_the_last_part_ends_the_line_also_without_a_value() -> None:
    assert format_named("DefaultMessageFormatter", {"print.value": "false", "print.key": "true"})(RECORD) == b"k\n"
    assert format_named("DefaultMessageFormatter", {"print.value": "false"})(RECORD) == b""


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("Short", b"\xff\xff", b"-1"),
        ("Integer", b"\0\0\0\x05", b"5"),
        ("Long", b"\0" * 7 + b"\x07", b"7"),
        ("Double", b"\x3f\xf8" + b"\0" * 6, b"1.5"),
        ("Boolean", b"\1", b"true"),
        ("UUID", b"F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6", b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
        ("String", b"\xff", b"\xff"),
    ],
)
def test_values_are_read_by_kafkas_deserializers(name: str, data: bytes, shown: bytes) -> None:
    full = f"org.apache.kafka.common.serialization.{name}Deserializer"
    shape = format_named("DefaultMessageFormatter", {"value.deserializer": full})
    assert shape(RECORD._replace(value=data)) == shown + b"\n"


def test_classes_of_ones_own_are_refused() -> None:
    with pytest.raises(ToolError, match=r"my\.Formatter: Java classes cannot be loaded"):
        format_named("my.Formatter", {})
    with pytest.raises(ToolError, match=r"my\.Deserializer: Java classes cannot be loaded"):
        format_named("DefaultMessageFormatter", {"key.deserializer": "my.Deserializer"})
