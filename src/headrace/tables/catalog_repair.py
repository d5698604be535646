"""What a crash can leave behind, and what is done about it.

The `live` link is the truth about which version is live, and carries the time since when; the code in a version's
directory is the truth about its code. Everything else follows from these and from the catalog. `repair_of` decides,
without IO; a cut-over, a roll-back and a discard end with the same decision, so that what completes a change that was
cut short is the code that runs every time.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from headrace.tables.layout import (
    CHECKPOINTS,
    HIDDEN,
    STAGING_PREFIX,
    TRASH_PREFIX,
    PipelineLayout,
    check_table_name,
    taken_owner,
    version_number,
)
from headrace.tables.links import LinkDisk
from headrace.tables.version_code import read_version_code
from headrace.tables.versions import Version, Versions, time_of_ms

INTERRUPTED = "its creation was interrupted"
FOUND = "found on the disk, not in the catalog"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """What lies on the disk."""

    live: int | None
    live_since: datetime | None
    directories: Mapping[int, "DirectoryFacts"]
    leftovers: frozenset[str]  # names of staging and trash directories
    links: frozenset[str]  # tables that have a stable link of this pipeline
    obstacles: Mapping[str, str] = field(default_factory=dict)  # live tables whose stable path is something else


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFacts:
    made_at: datetime
    code_sha256: str
    tables: tuple[str, ...]  # looked up only for a version that the catalog does not know; so is `taken`
    taken: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRepair:
    """The catalog as it should be, and what has to be done to the disk."""

    versions: Versions
    live: tuple[int, datetime] | None = None  # a live link that somebody removed
    link: tuple[str, ...] = ()
    unlink: tuple[str, ...] = ()
    remove_versions: tuple[int, ...] = ()
    remove_leftovers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def changes(self, versions: Versions) -> bool:
        return bool(
            self.versions != versions
            or self.live
            or self.link
            or self.unlink
            or self.remove_versions
            or self.remove_leftovers
        )


def repair_of(versions: Versions, facts: PipelineFacts, layout: PipelineLayout) -> CatalogRepair:
    warnings: list[str] = []
    for number in sorted(facts.directories.keys() - {version.number for version in versions.versions}):
        versions = versions.with_version(_adopted(number, facts))
    versions = followed(versions, facts)
    for version in versions.versions:
        directory = facts.directories.get(version.number)
        # A first version that never went live was never handed to anyone; nor was one whose directory is missing.
        unborn = version.state == "building" and (directory is None or not versions.intervals)
        if unborn:
            versions = versions.discarded(version.number, INTERRUPTED)
        elif version.state != "discarded" and directory is None:
            warnings.append(f"{layout.version_dir(version.number)}: missing; put it back, or discard the version")
        elif version.state != "discarded" and directory is not None and directory.code_sha256 != version.code_sha256:
            versions = versions.with_version(replace(version, code_sha256=directory.code_sha256))
    live = versions.live
    tables = set(live.tables) if live else set()
    since = versions.intervals[-1].since if versions.intervals else None
    lost = facts.live is None and live is not None and live.number in facts.directories
    for table, what in facts.obstacles.items():
        warnings.append(f"{layout.stable_path(table)}: {what} in the way of table {table}; move it away")
    return CatalogRepair(
        versions=versions,
        live=(live.number, since) if lost and live and since else None,
        link=tuple(sorted(tables - facts.links - facts.obstacles.keys())),
        unlink=tuple(sorted(facts.links - tables)),
        remove_versions=tuple(
            sorted(
                each.number
                for each in versions.versions
                if each.state == "discarded" and each.number in facts.directories
            )
        ),
        remove_leftovers=tuple(sorted(facts.leftovers)),
        warnings=tuple(warnings),
    )


def followed(versions: Versions, facts: PipelineFacts) -> Versions:
    """The catalog with the version live that the link says is."""
    if facts.live is None or facts.live_since is None or versions.find(facts.live) is None:
        return versions
    return versions.moved(facts.live, facts.live_since)


def _adopted(number: int, facts: PipelineFacts) -> Version:
    """A catalog that was lost or put back from a copy does not make tables vanish."""
    found = facts.directories[number]
    return Version(
        number=number,
        state="retired" if facts.live is None or number < facts.live else "building",
        created_at=found.made_at,
        code_sha256=found.code_sha256,
        note=FOUND,
        tables=found.tables,
        taken=found.taken,
    )


def facts_of(layout: PipelineLayout, versions: Versions, disk: LinkDisk) -> PipelineFacts:
    directories: dict[int, DirectoryFacts] = {}
    leftovers = set()
    for entry in _entries(layout.root):
        number = version_number(entry.name)
        if entry.name.startswith((STAGING_PREFIX, TRASH_PREFIX)):
            leftovers.add(entry.name)
        elif number is not None and entry.is_dir(follow_symlinks=False):
            known = versions.find(number) is not None
            code = read_version_code(layout.version_dir(number), disk)
            directories[number] = DirectoryFacts(
                made_at=time_of_ms(entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000),
                code_sha256=code.sha256 if code is not None else "",
                tables=() if known else _tables_in(layout.version_dir(number)),
                taken={} if known else _taken_in(layout.version_dir(number), disk),
            )
    target = disk.read_link(layout.live_link)
    live = version_number(target) if target is not None else None
    if live not in directories:
        live = None
    live_version = versions.find(live) if live is not None else versions.live
    expected = live_version.tables if live_version is not None else ()
    links, obstacles = set(), {}
    for entry in _entries(layout.tables_dir):
        if entry.name == HIDDEN:
            continue
        if entry.is_symlink() and disk.read_link(entry.path) == layout.stable_target(entry.name):
            links.add(entry.name)
        elif entry.name in expected:
            obstacles[entry.name] = "a foreign link" if entry.is_symlink() else "something that is not a link"
    return PipelineFacts(
        live=live,
        live_since=time_of_ms(disk.link_time_ms(layout.live_link)) if live is not None else None,
        directories=directories,
        leftovers=frozenset(leftovers),
        links=frozenset(links),
        obstacles=obstacles,
    )


def _taken_in(path: str, disk: LinkDisk) -> dict[str, int]:
    """The nodes that a version has taken over, by the links to their checkpoints."""
    targets = {entry.name: disk.read_link(entry.path) for entry in _entries(os.path.join(path, CHECKPOINTS))}
    owners = {node: taken_owner(target) for node, target in targets.items() if target is not None}
    return {node: owner for node, owner in owners.items() if owner is not None}


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _tables_in(path: str) -> tuple[str, ...]:
    return tuple(
        sorted(
            check_table_name(entry.name)
            for entry in _entries(path)
            if not entry.name.startswith(("_", ".")) and os.path.isdir(os.path.join(entry.path, "_delta_log"))
        )
    )
