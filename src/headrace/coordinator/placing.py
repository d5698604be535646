"""Which partition of an internal topic a group or a transactional id belongs to, as Kafka computes it."""

import functools


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, wrapped to a signed 32-bit number."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@functools.lru_cache(maxsize=4096)
def partition_for(key: str, partition_count: int) -> int:
    return (java_string_hash(key) & 0x7FFFFFFF) % partition_count
