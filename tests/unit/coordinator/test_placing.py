"""Which partition a group or a transactional id belongs to: Kafka's choice; impossible keys cost nothing."""

import pytest

from headrace.coordinator import group_records, placing
from headrace.coordinator.group_records import CommittedOffset, encode_offset_commit
from headrace.coordinator.placing import KEPT_CHARACTERS_MAX, KEY_CHARACTERS_MAX, java_string_hash, partition_for
from headrace.protocol.record_bytes import STRING_BYTES_MAX


@pytest.mark.parametrize(
    ("key", "hashed"),
    [("", 0), ("a", 97), ("group", 98629247), ("orders-consumer", -1204742690), ("\u4e2d\u6587", 646394)],
)
def test_keys_are_placed_by_javas_hash(key, hashed):
    assert java_string_hash(key) == hashed
    assert partition_for(key, 50) == (hashed & 0x7FFFFFFF) % 50


def test_long_keys_are_placed_alike_and_not_kept():
    placing._kept.cache_clear()
    for size in (KEPT_CHARACTERS_MAX, KEPT_CHARACTERS_MAX + 1, KEY_CHARACTERS_MAX):
        key = "k" * size
        assert partition_for(key, 50) == (java_string_hash(key) & 0x7FFFFFFF) % 50
    assert placing._kept.cache_info().currsize == 1


def test_a_key_that_no_record_can_hold_is_not_even_looked_at(monkeypatch):
    def looked_at(key):
        raise AssertionError(f"a key of {len(key)} characters was looked at")

    assert KEY_CHARACTERS_MAX == STRING_BYTES_MAX
    monkeypatch.setattr(placing, "java_string_hash", looked_at)
    assert partition_for("k" * (KEY_CHARACTERS_MAX + 1), 50) == 0


def test_offsets_of_a_group_with_a_long_name_are_written_alike_and_their_keys_not_kept():
    group_records._offset_key.cache_clear()
    for size in (KEPT_CHARACTERS_MAX, KEPT_CHARACTERS_MAX + 1):
        key, _ = encode_offset_commit("g" * size, "t", 3, CommittedOffset(1))
        assert key == b"\0\1" + size.to_bytes(2, "big") + b"g" * size + b"\0\1t\0\0\0\3"
    assert group_records._offset_key.cache_info().currsize == 1
