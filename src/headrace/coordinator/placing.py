"""The coordinators' internal topics, and to which partition a group or a transactional id belongs, as in Kafka."""

import functools
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"

KEY_CHARACTERS_MAX: Final = 0x7FFF  # in Kafka's records; a longer key is nobody's, and its hash would take seconds
KEPT_CHARACTERS_MAX: Final = 256  # a client may ask for thousands of long keys, which would be kept


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, wrapped to a signed 32-bit number."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partition_count: int) -> int:
    if len(key) <= KEPT_CHARACTERS_MAX:
        return _kept(key, partition_count)
    return 0 if len(key) > KEY_CHARACTERS_MAX else _partition_for(key, partition_count)


def _partition_for(key: str, partition_count: int) -> int:
    return (java_string_hash(key) & 0x7FFFFFFF) % partition_count


_kept = functools.lru_cache(maxsize=4096)(_partition_for)
