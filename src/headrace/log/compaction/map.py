"""Which offset each key was last written at, over the part of a log that is being compacted. Bounded in memory."""

from hashlib import blake2b

HASH_BYTES = 16


class KeyMap:
    """Keys are kept as a hash of 16 bytes, shorter ones as they are: those can be equal to no hash."""

    __slots__ = ("_offsets", "keys_max", "latest_offset")

    def __init__(self, keys_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self.keys_max = keys_max
        self.latest_offset = -1  # all records up to here are in the map

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self.keys_max

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[key if len(key) < HASH_BYTES else blake2b(key, digest_size=HASH_BYTES).digest()] = offset

    def get(self, key: bytes) -> int:
        """-1 where the key is not known."""
        return self._offsets.get(key if len(key) < HASH_BYTES else blake2b(key, digest_size=HASH_BYTES).digest(), -1)
