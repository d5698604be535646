"""Where Java's and kafka-python's default partitioner put a key, computed by ourselves: the tests' oracle.

`abs(murmur2(key)) % partitions`, where Kafka's `abs` clears the sign bit. Written from the definition of
MurmurHash2 (seed 0x9747b28c), not taken from a client.
"""

from __future__ import annotations

import struct

_MIX = 0x5BD1E995
_WORD = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    hash_ = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        word = word * _MIX & _WORD
        word ^= word >> 24
        hash_ = (hash_ * _MIX ^ word * _MIX) & _WORD
    if rest := key[whole:]:
        hash_ = (hash_ ^ int.from_bytes(rest, "little")) * _MIX & _WORD
    hash_ ^= hash_ >> 13
    hash_ = hash_ * _MIX & _WORD
    return hash_ ^ hash_ >> 15


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
