"""Answers that were encoded before, as long as nothing changed that they tell of.

Many clients ask for the same metadata again and again; building and encoding it is what costs. Bounded in
bytes; it is emptied as a whole when it is full or when the stamp (what the answers depend on) is another
one.
"""

from collections.abc import Hashable

CACHE_BYTES_MAX = 8 << 20


class AnswerCache:
    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._stamp: Hashable = None
        self._answers: dict[Hashable, bytes] = {}

    def get(self, stamp: Hashable, key: Hashable) -> bytes | None:
        if stamp != self._stamp:
            self._clear()
            self._stamp = stamp
        return self._answers.get(key)

    def put(self, stamp: Hashable, key: Hashable, answer: bytes) -> None:
        if stamp != self._stamp or self._bytes + len(answer) > self._bytes_max:
            self._clear()
            self._stamp = stamp
        if len(answer) <= self._bytes_max:
            self._answers[key] = answer
            self._bytes += len(answer)

    def _clear(self) -> None:
        self._answers.clear()
        self._bytes = 0
