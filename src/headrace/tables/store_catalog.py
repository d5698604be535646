"""The catalog of a pipeline whose tables lie in an object store: one file, `catalog.json`, is the whole truth.

A store has no links to swap, so readers ask the catalog which version is live; a cut-over replaces that one file, and
only if nobody replaced it since it was read. What a version's directory holds is written after the catalog knows the
version, and removed after the catalog has discarded it, so that a process killed in between leaves nothing unowned.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from headrace.core.errors import InvariantError, OperatorError
from headrace.tables.catalog import PipelineCatalog
from headrace.tables.catalog_repair import INTERRUPTED
from headrace.tables.layout import CODE, MODULES
from headrace.tables.object_store import ObjectStore, object_store
from headrace.tables.version_code import VersionCode, write_version_code
from headrace.tables.versions import Version, Versions, ms_of_time, time_of_ms

# A version whose code is not there after this long was begun by a process that died.
BEGINNING_MS_MAX: Final = 60_000
CODE_OBJECT: Final = "code.json"


class StoreCatalog(PipelineCatalog):
    _tag: str | None = None

    def refresh(self) -> None:
        self._versions = self._read()

    @property
    def _store(self) -> ObjectStore:
        return object_store(self.layout.root)

    @contextmanager
    def _changing(self, wait_seconds_max: float | None = None) -> Iterator[None]:
        self._settle()
        yield

    def _read(self) -> Versions:
        path = self.layout.catalog_file
        found = self._store.read_tagged(path)
        self._tag = found.tag if found is not None else None
        return Versions.from_json(found.data, path) if found is not None else Versions(pipeline=self.pipeline)

    def _write(self, versions: Versions) -> None:
        tag = self._store.write_if(self.layout.catalog_file, versions.to_json(), self._tag)
        if tag is None:
            raise OperatorError(f"{self.pipeline}: another process changed its catalog just now; try again")
        self._tag, self._versions = tag, versions

    def _settle(self) -> None:
        """A version that was begun and has no code was cut short; what is discarded goes."""
        self._versions = self._read()
        for version in self._versions.versions:
            directory = self.layout.version_dir(version.number)
            age_ms = self._clock.now_ms() - ms_of_time(version.created_at)
            if (
                version.state == "building"
                and age_ms > BEGINNING_MS_MAX
                and self._store.read(self._code_object(version.number)) is None
            ):
                self._write(self._versions.discarded(version.number, INTERRUPTED))
            if self._versions.get(version.number).state == "discarded" and self._store.names(directory):
                self._store.remove_tree(directory)

    def _make_directory(self, version: Version, code: VersionCode, files: Mapping[str, bytes]) -> None:
        if version.taken:
            raise InvariantError(f"{self.pipeline}: version {version.number} takes nodes over where there are no links")
        self._write_code(version.number, code)

    def _write_code(self, number: int, code: VersionCode) -> None:
        self._store.write(self._code_object(number), code.to_json())

    def _code_object(self, number: int) -> str:
        """One object, so that it is there whole or not at all."""
        return f"{self.layout.version_dir(number)}/{CODE_OBJECT}"

    def code(self, number: int) -> VersionCode:
        data = self._store.read(self._code_object(number))
        if data is None:
            raise OperatorError(f"{self._code_object(number)}: missing; put it back, or discard the version")
        return VersionCode.from_json(data, self._code_object(number))

    def code_files(self, number: int) -> tuple[str, str]:
        """A copy for as long as this process runs."""
        directory = tempfile.mkdtemp(prefix="headrace-code-")
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        write_version_code(directory, self.code(number), self._disk)
        return os.path.join(directory, CODE), os.path.join(directory, MODULES)

    def _make_live(self, number: int, version: Version) -> None:
        self._write(self._versions.moved(number, time_of_ms(self._since_ms())))

    def _let_go_of_live(self) -> None:
        """There is no link: the catalog alone says which version is live."""

    def _remove_root(self) -> None:
        self._store.remove_tree(self.layout.root)

    def _usable(self, number: int) -> Version:
        return self._kept(number)

    def _checked(self, tables: Iterable[str]) -> tuple[str, ...]:
        return self._unowned(tables)
