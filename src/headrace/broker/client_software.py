"""How many connections are open from which client software, by the names that clients give. Bounded: anybody can give
any name, so those beyond the first few count as one."""

from __future__ import annotations

from typing import Final

NAMES_MAX: Final = 20
OTHER: Final = "other"


class ClientSoftware:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._counted: dict[object, str] = {}  # whose connection counts under which name

    def tell(self, who: object, name: str) -> None:
        self.forget(who)
        if name not in self._counts and len(self._counts) >= NAMES_MAX:
            name = OTHER
        self._counts[name] = self._counts.get(name, 0) + 1
        self._counted[who] = name

    def forget(self, who: object) -> None:
        name = self._counted.pop(who, None)
        if name is None:
            return
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]

    def counts(self) -> dict[tuple[str], int]:
        """As a metric with one label."""
        return {(name,): count for name, count in self._counts.items()}
