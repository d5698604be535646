"""From a table's name to the directory that holds it, now or at a time in the past.

A `Resolver` looks up the live version of a pipeline once and keeps to it, so that a query over several tables sees
all of them before a cut-over or all of them after it. The directories it answers never move: a cut-over in the middle
of a query changes nothing for it. It only reads.
"""

import difflib
import os
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from headrace.core.errors import OperatorError
from headrace.tables.catalog import PipelineCatalog, pipelines, table_owners
from headrace.tables.layout import (
    EXPECTATIONS,
    HIDDEN,
    QUARANTINE,
    TABLES_DIR_DEFAULT,
    TABLES_DIR_VARIABLE,
    check_table_name,
    stable_owner,
    tables_root,
)
from headrace.tables.storage import is_delta, is_url, storage_of
from headrace.tables.versions import Version, time_text

Kind = Literal["pipeline", "quarantine", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLocation:
    """Where a table is. `name` is what a user calls it; pipeline and version are None for a plain Delta directory."""

    name: str
    path: str
    kind: Kind = "plain"
    pipeline: str | None = None
    version: int | None = None
    node: str | None = None

    @property
    def written(self) -> bool:
        """A pipeline's table is declared before its first batch is written."""
        return is_delta(self.path)


class Resolver:
    """Names to places under one tables directory, all as of one moment."""

    def __init__(self, tables_dir: str | os.PathLike[str], at: datetime | None = None) -> None:
        self.tables_dir = tables_root(tables_dir)
        self.at = at
        self._catalogs: dict[str, PipelineCatalog] = {}
        self._chosen: dict[str, Version | None] = {}

    def catalog(self, pipeline: str) -> PipelineCatalog:
        if pipeline not in self._catalogs:
            self._catalogs[pipeline] = PipelineCatalog.open(self.tables_dir, pipeline)
        return self._catalogs[pipeline]

    def version(self, pipeline: str) -> Version | None:
        """The version of a pipeline that is live, or was live at the resolver's time."""
        if pipeline not in self._chosen:
            history = self.catalog(pipeline).history
            self._chosen[pipeline] = history.live if self.at is None else history.live_at(self.at)
        return self._chosen[pipeline]

    def resolve(self, name: str) -> TableLocation:
        """A table by its name, a quarantine by `_quarantine/<node>`, or any Delta table by its path."""
        place = self._find(name)
        if place is None:
            raise OperatorError(self._unknown(name))
        if not place.written:
            if place.pipeline is None:
                raise OperatorError(f"{place.path}: not a Delta table; give the path of a directory with a _delta_log")
            raise OperatorError(
                f"{name}: version {place.version} of pipeline {place.pipeline} has not written it yet; "
                f"run the pipeline, or look again later"
            )
        return place

    def _find(self, name: str) -> TableLocation | None:
        if is_url(name):
            return TableLocation(name=name, path=tables_root(name))
        node = quarantine_node(name)
        if node is not None:
            return self._quarantine(name, node)
        path = os.path.join(self.tables_dir, name)
        if is_url(path):
            pipeline = table_owners(self.tables_dir).get(name)
            if pipeline is not None:
                return self._of_pipeline(name, pipeline)
            return TableLocation(name=name, path=path) if is_delta(path) else None
        if os.path.dirname(name) == "":
            target = os.readlink(path) if os.path.islink(path) else None
            owner = stable_owner(target) if target is not None else None
            pipeline = owner[0] if owner else table_owners(self.tables_dir).get(name)
            # A table that the live version no longer has can still be read as of when it was there.
            if pipeline is not None and (owner or self.at is not None or not os.path.lexists(path)):
                return self._of_pipeline(name, pipeline)
        for candidate in (path, os.path.abspath(os.path.expanduser(name))):
            if is_delta(candidate):
                return TableLocation(name=name, path=os.path.realpath(candidate))
        return TableLocation(name=name, path=os.path.abspath(name)) if os.sep in name else None

    def _of_pipeline(self, name: str, pipeline: str) -> TableLocation:
        version = self._version_or_refuse(name, pipeline)
        layout = self.catalog(pipeline).layout
        path = layout.table_dir(version.number, name)
        if name not in version.tables and not is_delta(path):
            when = "" if self.at is None else f", live at {time_text(self.at)},"
            raise OperatorError(
                f"{name}: version {version.number} of pipeline {pipeline}{when} has no such table; "
                f"it has {', '.join(version.tables) or 'none'}"
            )
        return TableLocation(
            name=name, path=path, kind="pipeline", pipeline=pipeline, version=version.number, node=name
        )

    def _version_or_refuse(self, name: str, pipeline: str) -> Version:
        version = self.version(pipeline)
        if version is None:
            catalog = self.catalog(pipeline)
            if self.at is None or not catalog.intervals:
                raise OperatorError(f"{name}: no version of pipeline {pipeline} is live; run the pipeline")
            first = time_text(catalog.intervals[0].since)
            raise OperatorError(
                f"{name}: nothing was live at {time_text(self.at)}; pipeline {pipeline} began at {first}"
            )
        if version.state == "discarded":
            raise OperatorError(
                f"{name}: version {version.number} of pipeline {pipeline}, live at that time, was discarded; "
                f"ask for a later time"
            )
        return version

    def _quarantine(self, name: str, node: str) -> TableLocation | None:
        found = [place for place in self.quarantines() if place.node == node]
        if len(found) > 1:
            owners = ", ".join(str(place.pipeline) for place in found)
            raise OperatorError(f"{name}: pipelines {owners} have a quarantine of that name; give its path")
        return found[0] if found else None

    def quarantines(self) -> list[TableLocation]:
        """The quarantine tables of the live versions."""
        return [
            TableLocation(
                name=f"{QUARANTINE}/{node}",
                path=path,
                kind="quarantine",
                pipeline=pipeline,
                version=number,
                node=node,
            )
            for pipeline, number, node, path in self._nodes(QUARANTINE)
            if is_delta(path)
        ]

    def expectations(self) -> dict[tuple[str, str], str]:
        """(pipeline, node) to the file with the counts of its expectations, in the live versions."""
        return {
            (pipeline, node.removesuffix(".jsonl")): path
            for pipeline, _, node, path in self._nodes(EXPECTATIONS)
            if node.endswith(".jsonl")
        }

    def _nodes(self, directory: str) -> list[tuple[str, int, str, str]]:
        found = []
        for pipeline in pipelines(self.tables_dir):
            version = self.version(pipeline)
            if version is None or version.state == "discarded":
                continue
            parent = os.path.join(self.catalog(pipeline).layout.version_dir(version.number), directory)
            found += [(pipeline, version.number, name, os.path.join(parent, name)) for name in _names(parent)]
        return found

    def places(self) -> list[TableLocation]:
        """Every table of the directory: of pipelines (written or not), quarantines, and plain Delta directories."""
        found: dict[str, TableLocation] = {}
        for pipeline in pipelines(self.tables_dir):
            version = self.version(pipeline)
            if version is not None and version.state != "discarded":
                for name in version.tables:
                    found[name] = self._of_pipeline(name, pipeline)
        for name in _names(self.tables_dir):
            path = os.path.join(self.tables_dir, name)
            if name != HIDDEN and name not in found and is_delta(path):
                found[name] = TableLocation(name=name, path=path if is_url(path) else os.path.realpath(path))
        return [found[name] for name in sorted(found)] + self.quarantines()

    def _unknown(self, name: str) -> str:
        if not is_url(self.tables_dir) and not os.path.isdir(self.tables_dir):
            return f"{self.tables_dir}: no such directory; give --tables DIR or set {TABLES_DIR_VARIABLE}"
        names = [place.name for place in self.places()]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        if near:
            return f"{name}: no such table in {self.tables_dir}; did you mean {near[0]}?"
        some = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return f"{name}: no such table in {self.tables_dir}; there are: {some or 'none'}"


def resolve(tables_dir: str | os.PathLike[str], name: str, at: datetime | None = None) -> str:
    """The physical directory of a table now, or of the version that was live at a time."""
    return Resolver(tables_dir, at).resolve(name).path


def table_path(name: str, tables: str | os.PathLike[str] | None = None, at: datetime | None = None) -> str:
    """The directory of a table as one version of its pipeline made it: what to give to a reader.

    `tables` is the directory of tables; by default $HEADRACE_TABLES, or ./headrace-tables. With `at`, the version that
    was live at that time. The stable path `<tables>/<name>` can be read as well; this one stays on one version even
    while a cut-over happens.

        spark.read.format("delta").load(headrace.table_path("clean_orders"))
        deltalake.DeltaTable(headrace.table_path("clean_orders")).to_pandas()
        polars.read_delta(headrace.table_path("clean_orders"))
        orders = deltalake.DeltaTable(headrace.table_path("clean_orders")).scan(); duckdb.sql("from orders")
    """
    return resolve(tables if tables is not None else default_tables_dir(), name, at)


def default_tables_dir() -> str:
    return os.environ.get(TABLES_DIR_VARIABLE) or TABLES_DIR_DEFAULT


def quarantine_node(name: str) -> str | None:
    """The node of `_quarantine/<node>` (or `_quarantine.<node>`, as SQL has it); None for any other name."""
    for separator in ("/", "."):
        prefix = QUARANTINE + separator
        if name.startswith(prefix):
            return check_table_name(name.removeprefix(prefix))
    return None


def _names(path: str) -> list[str]:
    return storage_of(path).names(path)
