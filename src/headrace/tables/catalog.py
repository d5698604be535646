"""The catalog of one pipeline: its versions, the links that readers follow, which version was live when.

It is the only writer of the layout's links and of `catalog.json`. A change takes the lock of the tables directory,
reads what is there, repairs what an earlier process left half done, and then goes in steps of which each leaves a state
that opening the catalog again understands: the process may be killed between any two of them. Reading takes no lock,
and works while others change the catalog or where nothing may be written.
"""

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from headrace.core.clock import Clock, SystemClock
from headrace.core.errors import OperatorError
from headrace.tables.catalog_repair import CatalogRepair, facts_of, followed, repair_of
from headrace.tables.layout import (
    HIDDEN,
    STAGING_PREFIX,
    TRASH_PREFIX,
    PipelineLayout,
    check_table_name,
    tables_root,
)
from headrace.tables.links import LOCK_WAIT_SECONDS_MAX, LinkDisk, LockedError
from headrace.tables.storage import is_url, storage_of
from headrace.tables.version_code import VersionCode, read_version_code, write_version_code
from headrace.tables.versions import Interval, Version, Versions, ms_of_time, time_of_ms

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


class PipelineCatalog:
    """Open one with `PipelineCatalog.open`. What it shows is what was there then; `refresh()` looks again."""

    def __init__(self, layout: PipelineLayout, *, clock: Clock, disk: LinkDisk) -> None:
        self.layout = layout
        self.warnings: tuple[str, ...] = ()
        self._lock_wait_seconds_max = LOCK_WAIT_SECONDS_MAX
        self._clock = clock
        self._disk = disk
        self._versions = Versions(pipeline=layout.pipeline)

    @classmethod
    def open(
        cls,
        tables_dir: str | os.PathLike[str],
        pipeline: str,
        *,
        clock: Clock | None = None,
        disk: LinkDisk | None = None,
    ) -> "PipelineCatalog":
        """A pipeline that never ran has a catalog without versions; nothing is written for it."""
        layout, clock = PipelineLayout.of(tables_dir, pipeline), clock or SystemClock()
        if is_url(layout.tables_dir):
            from headrace.tables.store_catalog import StoreCatalog

            cls = StoreCatalog
        catalog = cls(layout, clock=clock, disk=disk or LinkDisk())
        catalog.refresh()
        return catalog

    def refresh(self) -> None:
        """Reads, and repairs what a process that died left half done; where that cannot be written, in memory only."""
        versions = self._read()
        facts = facts_of(self.layout, versions, self._disk)
        repair = repair_of(versions, facts, self.layout)
        if repair.changes(versions):
            try:
                with self._changing(wait_seconds_max=0):
                    return
            except LockedError:
                # Somebody is at it: nothing died, and what they have not finished is theirs. Only the link counts.
                repair = CatalogRepair(versions=followed(versions, facts))
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise
        self._take(repair)

    @property
    def pipeline(self) -> str:
        return self.layout.pipeline

    @property
    def versions(self) -> tuple[Version, ...]:
        return self._versions.versions

    @property
    def intervals(self) -> tuple[Interval, ...]:
        return self._versions.intervals

    @property
    def live(self) -> Version | None:
        return self._versions.live

    @property
    def history(self) -> Versions:
        """Versions and intervals as one value."""
        return self._versions

    def version(self, number: int) -> Version:
        return self._versions.get(number)

    def code(self, number: int) -> VersionCode:
        """What a version runs."""
        code = read_version_code(self.layout.version_dir(number), self._disk)
        if code is None:
            raise OperatorError(f"{self.layout.code_file(number)}: missing; put it back, or discard the version")
        return code

    def code_files(self, number: int) -> tuple[str, str]:
        """The file of a version's code and the directory of its modules, on this machine."""
        return self.layout.code_file(number), self.layout.modules_dir(number)

    def create_first(self, code: str | bytes | VersionCode, tables: Iterable[str], *, note: str = "") -> Version:
        """The first version, live at once."""
        with self._changing():
            live = self._versions.live
            if live is not None:
                raise OperatorError(
                    f"{self.pipeline}: version {live.number} is live already; replay to build the next one"
                )
            number = self._begin(code, tables, note)
            self._move_to(number)
        return self.version(number)

    def begin_version(
        self,
        code: str | bytes | VersionCode,
        tables: Iterable[str],
        *,
        note: str = "",
        taken: Mapping[str, int] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> Version:
        """The next version, in state building, in a directory of its own: empty but for the links to the nodes that it
        takes over from other versions (`taken`: which from which) and the small `files` that these need."""
        with self._changing():
            if self._versions.live is None:
                raise OperatorError(
                    f"{self.pipeline}: nothing is live yet, so there is nothing to replay; run it first"
                )
            for owner in set((taken or {}).values()):
                self._usable(owner)
            number = self._begin(code, tables, note, taken or {}, files or {})
        return self.version(number)

    def declare(
        self, number: int, *, tables: Iterable[str] | None = None, code: str | bytes | VersionCode | None = None
    ) -> Version:
        """Code or tables of a version that goes on: a table was added, or a line changed that its state allows."""
        with self._changing():
            version = self._usable(number)
            if tables is not None:
                version = replace(version, tables=self._checked(tables))
            if code is not None:
                # The files are the truth; a hash that is not theirs is put right when the change is settled.
                version = replace(version, code_sha256=VersionCode.of(code).sha256)
            self._write(self._versions.with_version(version))
            if code is not None:
                self._write_code(number, VersionCode.of(code))
            self._settle()
        return self.version(number)

    def cut_over(self, number: int) -> Version:
        """Makes a version live: its tables' stable paths lead to it from one moment on, all of them at once."""
        with self._changing():
            self._usable(number)
            self._move_to(number)
        return self.version(number)

    def roll_back(self) -> Version:
        """Makes the version live that was live before this one."""
        with self._changing():
            number = self._versions.rollback_target()
            if number is None:
                raise OperatorError(
                    f"{self.pipeline}: no version was live before this one; cut over to one by its number"
                )
            self._usable(number)
            self._move_to(number)
        return self.version(number)

    def discard(self, number: int) -> Version:
        """Removes a version's directory for good. The live one is refused."""
        with self._changing():
            version = self._versions.get(number)
            if version.state == "live":
                raise OperatorError(f"{self.pipeline}: version {number} is live; roll back or cut over first")
            for user, nodes in self._versions.taken_from(number).items():
                raise OperatorError(
                    f"{self.pipeline}: version {number} holds {', '.join(nodes)}, which version {user} has taken over; "
                    f"discard version {user} first, or cut over to a version that was replayed whole and discard both"
                )
            if version.state != "discarded":
                self._write(self._versions.discarded(number))
                self._settle()
        return self.version(number)

    def remove(self) -> None:
        """Ends the pipeline: every version with its tables, their stable paths, and the catalog itself. Killed before
        the catalog says so, nothing was removed; after that, the next look completes it."""
        with self._changing():
            self._let_go_of_live()
            self._write(self._versions.all_discarded())
            self._settle()
            self._remove_root()
            self._versions = Versions(pipeline=self.pipeline)

    # Steps. Each of them is whole or did not happen, and runs under the lock.

    @contextmanager
    def _changing(self, wait_seconds_max: float | None = None) -> Iterator[None]:
        self._disk.make_directory(self.layout.root)
        wait = self._lock_wait_seconds_max if wait_seconds_max is None else wait_seconds_max
        with self._disk.locked(self.layout.lock_file, wait):
            self._settle()
            yield

    def _read(self) -> Versions:
        data = self._disk.read_file(self.layout.catalog_file)
        if data is None:
            return Versions(pipeline=self.layout.pipeline)
        return Versions.from_json(data, self.layout.catalog_file)

    def _take(self, repair: CatalogRepair) -> None:
        self._versions = repair.versions
        self.warnings = repair.warnings

    def _settle(self) -> None:
        """Makes disk and catalog agree: after a crash, and at the end of every change."""
        versions = self._read()
        repair = repair_of(versions, facts_of(self.layout, versions, self._disk), self.layout)
        if repair.versions != versions:
            self._write(repair.versions)
        if repair.live is not None:
            number, since = repair.live
            self._swap_live(number, ms_of_time(since))
        for table in repair.link:
            self._disk.swap_link(self.layout.stable_target(table), self.layout.stable_path(table))
        for table in repair.unlink:
            self._disk.unlink(self.layout.stable_path(table))
        if repair.link or repair.unlink:
            self._disk.sync_directory(self.layout.tables_dir)
        for number in repair.remove_versions:
            # A rename first: a reader finds the whole version or none of it.
            trash = os.path.join(self.layout.root, f"{TRASH_PREFIX}v{number}-{secrets.token_hex(4)}")
            self._disk.rename(self.layout.version_dir(number), trash)
            self._disk.remove_tree(trash)
        for name in repair.remove_leftovers:
            self._disk.remove_tree(os.path.join(self.layout.root, name))
        self._take(repair)

    def _write(self, versions: Versions) -> None:
        self._disk.replace_file(self.layout.catalog_file, versions.to_json())
        self._disk.sync_directory(self.layout.root)
        self._versions = versions

    def _begin(
        self,
        code: str | bytes | VersionCode,
        tables: Iterable[str],
        note: str,
        taken: Mapping[str, int] = MappingProxyType({}),
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> int:
        """The catalog knows a version before its directory exists, so that no directory is ever without an owner."""
        given, number = VersionCode.of(code), self._versions.number_next
        version = Version(
            number=number,
            state="building",
            created_at=time_of_ms(self._clock.now_ms()),
            code_sha256=given.sha256,
            note=note,
            tables=self._checked(tables),
            taken=dict(taken),
        )
        self._write(self._versions.with_version(version))
        self._make_directory(version, given, files)
        return number

    def _make_directory(self, version: Version, code: VersionCode, files: Mapping[str, bytes]) -> None:
        number = version.number
        staging = os.path.join(self.layout.root, f"{STAGING_PREFIX}v{number}")
        self._disk.make_directory(staging)
        write_version_code(staging, code, self._disk)
        for name, data in files.items():
            self._disk.make_directory(os.path.dirname(os.path.join(staging, name)))
            self._disk.replace_file(os.path.join(staging, name), data)
        for node, owner in version.taken.items():
            for place, target in self.layout.taken_links(owner, node).items():
                if place != node or node in version.tables:
                    self._disk.make_directory(os.path.dirname(os.path.join(staging, place)))
                    self._disk.swap_link(target, os.path.join(staging, place))
        self._disk.rename(staging, self.layout.version_dir(number))
        self._disk.sync_directory(self.layout.root)

    def _write_code(self, number: int, code: VersionCode) -> None:
        write_version_code(self.layout.version_dir(number), code, self._disk)

    def _move_to(self, number: int) -> None:
        live, version = self._versions.live, self._versions.get(number)
        if live is not None and live.number == number:
            return
        self._checked(version.tables)
        self._make_live(number, version)

    def _make_live(self, number: int, version: Version) -> None:
        for table in version.tables:
            if self._disk.read_link(self.layout.stable_path(table)) is None:
                self._disk.swap_link(self.layout.stable_target(table), self.layout.stable_path(table))
        self._disk.sync_directory(self.layout.tables_dir)
        self._swap_live(number, self._since_ms())
        self._settle()

    def _since_ms(self) -> int:
        """Now, and never before what was written down last, whatever the clock says."""
        return max([self._clock.now_ms(), *(ms_of_time(each.since) for each in self._versions.intervals)])

    def _swap_live(self, number: int, since_ms: int) -> None:
        target = os.path.basename(self.layout.version_dir(number))
        self._disk.swap_link(target, self.layout.live_link, time_ms=since_ms)
        self._disk.sync_directory(self.layout.root)

    def _let_go_of_live(self) -> None:
        self._disk.unlink(self.layout.live_link)
        self._disk.sync_directory(self.layout.root)

    def _remove_root(self) -> None:
        self._disk.remove_tree(self.layout.root)

    def _kept(self, number: int) -> Version:
        version = self._versions.get(number)
        if version.state == "discarded":
            raise OperatorError(f"{self.pipeline}: version {number} was discarded; replay to build a new one")
        return version

    def _usable(self, number: int) -> Version:
        version = self._kept(number)
        if not os.path.isdir(self.layout.version_dir(number)):
            raise OperatorError(f"{self.layout.version_dir(number)}: missing; put it back, or discard the version")
        return version

    def _unowned(self, tables: Iterable[str]) -> tuple[str, ...]:
        names = tuple(sorted({check_table_name(name) for name in tables}))
        owners = table_owners(self.layout.tables_dir, without=self.pipeline)
        for name in names:
            if name in owners:
                raise OperatorError(
                    f"table {name}: belongs to pipeline {owners[name]}; rename it, or use another tables directory"
                )
        return names

    def _checked(self, tables: Iterable[str]) -> tuple[str, ...]:
        """Table names that this pipeline may have: nobody else's, and nothing else stands at their stable paths."""
        names = self._unowned(tables)
        for name in names:
            path = self.layout.stable_path(name)
            target = self._disk.read_link(path)
            if target is None and os.path.lexists(path):
                raise OperatorError(f"{path}: it is not a link of Headrace's; move it away, or rename table {name}")
            if target is not None and target != self.layout.stable_target(name):
                raise OperatorError(f"{path}: a link to {target}, not ours; move it away, or rename table {name}")
        return names


def pipelines(tables_dir: str | os.PathLike[str]) -> tuple[str, ...]:
    """The pipelines that keep tables in a directory."""
    root = tables_root(tables_dir)
    hidden, storage = os.path.join(root, HIDDEN), storage_of(root)
    if is_url(root):
        return tuple(name for name in storage.names(hidden) if "catalog.json" in storage.names(f"{hidden}/{name}"))
    return tuple(name for name in storage.names(hidden) if os.path.isfile(os.path.join(hidden, name, "catalog.json")))


def table_owners(tables_dir: str, *, without: str | None = None) -> dict[str, str]:
    """Which pipeline each table name belongs to."""
    owners: dict[str, str] = {}
    for pipeline in pipelines(tables_dir):
        path = PipelineLayout.of(tables_dir, pipeline).catalog_file
        data = storage_of(path).read(path) if pipeline != without else None
        if data is not None:
            owners.update(dict.fromkeys(Versions.from_json(data, path).owned_tables(), pipeline))
    return owners
