"""The versions of a pipeline, and which was live from when to when: values and transitions, no IO.

    building ──► live ◄──► retired        a cut-over or a roll-back makes one version live and retires the other
        │                     │
        └────► discarded ◄────┘           its directory is gone; its number is never used again

`before` of a version is the one that was live when it was cut over, so rolling back twice goes back two versions;
going to that one is a roll-back by whatever name it was called, and leaves `before` alone.

A version may have taken over nodes of earlier ones as they are: such a node's table and checkpoint lie in the directory
of its owner, and of that one alone, so a version cannot be discarded while a later one has its nodes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from headrace.core.errors import OperatorError

FORMAT = 1
FORMAT_TAKEN = 2  # of a catalog in which a version has taken over nodes: who does not know that would discard them
State = Literal["building", "live", "retired", "discarded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    number: int
    state: State
    created_at: datetime
    code_sha256: str = ""
    note: str = ""
    tables: tuple[str, ...] = ()
    before: int | None = None
    taken: Mapping[str, int] = field(
        default_factory=dict
    )  # nodes taken over, and in which version's directory they lie

    def owner(self, node: str) -> int:
        """The version in whose directory a node's table and checkpoint lie."""
        return self.taken.get(node, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """When a version was live; `until` is None while it still is."""

    version: int
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """All that the catalog of one pipeline says."""

    pipeline: str
    versions: tuple[Version, ...] = ()
    intervals: tuple[Interval, ...] = ()

    @property
    def live(self) -> Version | None:
        return next((version for version in self.versions if version.state == "live"), None)

    @property
    def number_next(self) -> int:
        return max((version.number for version in self.versions), default=0) + 1

    def find(self, number: int) -> Version | None:
        return next((version for version in self.versions if version.number == number), None)

    def get(self, number: int) -> Version:
        version = self.find(number)
        if version is None:
            known = ", ".join(str(version.number) for version in self.versions) or "none"
            raise OperatorError(f"{self.pipeline}: there is no version {number}; there are: {known}")
        return version

    def live_at(self, at: datetime) -> Version | None:
        """The version that was live at a time; None before the first was."""
        for interval in reversed(self.intervals):
            if interval.since <= at and (interval.until is None or at < interval.until):
                return self.find(interval.version)
        return None

    def rollback_target(self) -> int | None:
        """Where a roll-back goes: the version that was live before this one, skipping what was discarded since."""
        version, seen = self.live, set[int]()
        while version is not None and version.before is not None and version.before not in seen:
            seen.add(version.number)
            version = self.find(version.before)
            if version is not None and version.state == "retired":
                return version.number
        return None

    def owned_tables(self) -> frozenset[str]:
        """Names that no other pipeline may take: a retired version can come back."""
        return frozenset(name for version in self.versions if version.state != "discarded" for name in version.tables)

    def taken_from(self, number: int) -> dict[int, list[str]]:
        """The versions that have taken over nodes of this one, and which."""
        users = [each for each in self.versions if each.state != "discarded" and number in each.taken.values()]
        return {each.number: sorted(node for node, owner in each.taken.items() if owner == number) for each in users}

    def with_version(self, version: Version) -> "Versions":
        others = [other for other in self.versions if other.number != version.number]
        return replace(self, versions=tuple(sorted([*others, version], key=lambda each: each.number)))

    def moved(self, number: int, at: datetime) -> "Versions":
        """Makes a version live from `at` on."""
        old, new = self.live, self.get(number)
        if old is not None and old.number == number:
            return self
        before = new.before if self.rollback_target() == number else (old.number if old else None)
        result = self.with_version(replace(new, state="live", before=before))
        if old is not None:
            result = result.with_version(replace(old, state="retired"))
        intervals = [replace(each, until=at) if each.until is None else each for each in self.intervals]
        return replace(result, intervals=(*intervals, Interval(version=number, since=at)))

    def discarded(self, number: int, note: str = "") -> "Versions":
        version = self.get(number)
        return self.with_version(replace(version, state="discarded", note=note or version.note))

    def all_discarded(self) -> "Versions":
        return replace(self, versions=tuple(replace(each, state="discarded") for each in self.versions))

    def to_json(self) -> bytes:
        content = {
            "format": FORMAT_TAKEN if any(each.taken for each in self.versions) else FORMAT,
            "pipeline": self.pipeline,
            "versions": [
                {
                    "number": each.number,
                    "state": each.state,
                    "created_at": time_text(each.created_at),
                    "code_sha256": each.code_sha256,
                    "note": each.note,
                    "tables": list(each.tables),
                    "before": each.before,
                    **({"taken": dict(each.taken)} if each.taken else {}),
                }
                for each in self.versions
            ],
            "live": [
                {
                    "version": each.version,
                    "since": time_text(each.since),
                    "until": None if each.until is None else time_text(each.until),
                }
                for each in self.intervals
            ],
        }
        return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "Versions":
        try:
            content = json.loads(data)
            if content["format"] not in (FORMAT, FORMAT_TAKEN):
                raise OperatorError(
                    f"{path}: its format is {content['format']}, this Headrace knows {FORMAT} and {FORMAT_TAKEN}; "
                    f"use a newer Headrace"
                )
            return cls(
                pipeline=content["pipeline"],
                versions=tuple(map(_version, content["versions"])),
                intervals=tuple(map(_interval, content["live"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OperatorError(
                f"{path}: not a catalog ({error}); put back a good copy, or remove it: "
                "it is made again from the directories beside it, without the history"
            ) from error


def _version(content: dict[str, Any]) -> Version:
    if content["state"] not in ("building", "live", "retired", "discarded"):
        raise ValueError(f"state {content['state']!r}")
    return Version(
        number=int(content["number"]),
        state=content["state"],
        created_at=time_of(content["created_at"]),
        code_sha256=content["code_sha256"],
        note=content["note"],
        tables=tuple(content["tables"]),
        before=content["before"],
        taken={str(node): int(owner) for node, owner in content.get("taken", {}).items()},
    )


def _interval(content: dict[str, Any]) -> Interval:
    until = content["until"]
    return Interval(
        version=int(content["version"]),
        since=time_of(content["since"]),
        until=None if until is None else time_of(until),
    )


def time_text(at: datetime) -> str:
    """Milliseconds, as Delta's commits have them."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_of(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"time {text!r} without a zone")
    return at


def time_of_ms(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def ms_of_time(at: datetime) -> int:
    return round(at.timestamp() * 1000)
