"""From a file to a version that may run: which version it is, whether its code fits, and that nobody else runs it.

A version is run by one process at a time; the lock is the kernel's, so that it goes with the process, however it ends.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.core.errors import OperatorError
from headrace.streaming.code_change import VersionOutput, changed_files, touched_names
from headrace.streaming.graph import Graph, make_graph
from headrace.streaming.lease import Lease
from headrace.streaming.loading import LoadedPipeline, load
from headrace.streaming.progress import read_progress
from headrace.streaming.refreshing import files_taken, rebuilt, taken_over
from headrace.streaming.starting import Starting, starting
from headrace.tables.catalog import PipelineCatalog, pipelines
from headrace.tables.storage import is_url, storage_of
from headrace.tables.versions import Version

LOCK_NAME, LEASE_NAME = "run.lock", "run.lease"
KEEP_NAME = "run.keep"  # holds KEEP when the run goes on although another version is live
KEEP, END = b"keep\n", b"end\n"
NOTE_PREFIX = "from "
CHANGED_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A version of a pipeline, ready to be run. `first`: the pipeline did not exist before; `news`: what its user
    should know."""

    loaded: LoadedPipeline
    graph: Graph
    catalog: PipelineCatalog
    version: int
    first: bool = False
    news: str = ""

    @property
    def taken(self) -> Mapping[str, int]:
        """The nodes that the version has taken over, and from which version."""
        return self.catalog.version(self.version).taken

    @property
    def live(self) -> bool:
        live = self.catalog.live
        return live is not None and live.number == self.version


def open_pipeline(path: str) -> tuple[LoadedPipeline, Graph]:
    loaded = load(path)
    return loaded, make_graph(loaded)


def launch_live(path: str, tables_dir: str, *, accept_change: bool = False) -> Launch:
    """The live version, by its file, or by the pipeline's name for the code that the version itself keeps."""
    if not os.path.exists(path) and path in pipelines(tables_dir):
        return _launch_saved(path, tables_dir)
    loaded, graph = open_pipeline(path)
    return launch_loaded(loaded, graph, tables_dir, path=path, accept_change=accept_change)


def launch_loaded(
    loaded: LoadedPipeline, graph: Graph, tables_dir: str, *, path: str, accept_change: bool = False
) -> Launch:
    """The live version of a pipeline whose code is at hand; `path` is what its user calls it."""
    catalog = PipelineCatalog.open(tables_dir, graph.pipeline)
    tables = table_names(graph)
    live = catalog.live
    if live is None:
        version = catalog.create_first(loaded.version_code, tables).number
        return Launch(loaded=loaded, graph=graph, catalog=catalog, version=version, first=True)
    changed = _changed(loaded, catalog, live.number)
    news = ""
    if changed:
        if not accept_change and (begun := _begin_again(loaded, graph, catalog, live)) is not None:
            named = ", ".join(begun) or "no node"
            news = f"changed, and has written nothing: {named}; version {live.number} goes on with the new code"
        elif not accept_change:
            raise OperatorError(
                f"{path}: its code is not that of version {live.number}, which is live ({changed}); "
                f"build the next version with: headrace pipeline replay {path}   "
                f"(or run it with --accept-change to go on with the tables and the state that are there)"
            )
        catalog.declare(live.number, tables=tables, code=loaded.version_code)
    return Launch(loaded=loaded, graph=graph, catalog=catalog, version=live.number, news=news)


def _begin_again(loaded: LoadedPipeline, graph: Graph, catalog: PipelineCatalog, live: Version) -> list[str] | None:
    """The nodes that the change touches, made to begin again; None when one of them has written rows, or when it cannot
    be told which they are."""
    touched = touched_names(catalog.code(live.number), loaded.version_code)
    if touched is None:
        return None
    written = VersionOutput(catalog.layout, live.number, live.tables)
    nodes = sorted(touched & ({node.name for node in graph.queries} | _begun(catalog, live)))
    shared = {*live.taken, *(node for each in catalog.history.taken_from(live.number).values() for node in each)}
    if any(node in shared or written.rows(node) for node in nodes):
        return None  # what versions share is not for one of them to begin again
    with exclusive(catalog, live.number):
        for node in nodes:
            written.forget(node)
    return nodes


def _begun(catalog: PipelineCatalog, version: Version) -> set[str]:
    """The nodes that a version knows by what they left: a node may be gone from the code."""
    checkpoints = os.path.dirname(catalog.layout.checkpoint_dir(version.number, "any"))
    return {*version.tables, *storage_of(checkpoints).names(checkpoints)}


def launch_next(
    path: str, tables_dir: str, start: str | None, refresh: tuple[str, ...] = ()
) -> tuple[Launch, Starting]:
    """The next version, or the one that a replay of the same code began and did not end; and where it begins. With
    `refresh` it builds these tables again and what depends on them, and takes over the others as they are."""
    starting(start or "earliest")  # a bad starting place is reported before anything is created
    loaded, graph = open_pipeline(path)
    catalog = PipelineCatalog.open(tables_dir, graph.pipeline)
    live = catalog.live
    if live is None:
        raise OperatorError(
            f"{graph.pipeline}: nothing is live yet, so there is nothing to replay; "
            f"run it first: headrace pipeline run {path}"
        )
    wanted = rebuilt(graph, refresh) if refresh else frozenset(node.name for node in graph.queries)
    for version in reversed(catalog.versions):
        if version.state == "building" and not _changed(loaded, catalog, version.number):
            begun = version.note.removeprefix(NOTE_PREFIX) or "earliest"
            if start is not None and start != begun:
                raise OperatorError(
                    f"{graph.pipeline}: version {version.number} is a replay of this code from {begun}; "
                    f"go on without --from, or discard it first: headrace pipeline discard {graph.pipeline}"
                )
            built = frozenset(node.name for node in graph.queries) - version.taken.keys()
            if built != wanted:
                what = f"builds {', '.join(sorted(built))} only" if version.taken else "builds every table"
                raise OperatorError(
                    f"{graph.pipeline}: version {version.number} is a replay of this code that {what}; go on with "
                    f"the --refresh that it was begun with, or discard it first: headrace pipeline discard "
                    f"{graph.pipeline}"
                )
            return _next(loaded, graph, catalog, version), starting(begun)
    begun = start or "earliest"
    taken = taken_over(loaded, graph, catalog, live, refresh) if refresh else {}
    made = catalog.begin_version(
        loaded.version_code,
        table_names(graph),
        note=NOTE_PREFIX + begun,
        taken=taken,
        files=files_taken(graph, catalog, live, taken),
    )
    return _next(loaded, graph, catalog, made), starting(begun)


def _next(loaded: LoadedPipeline, graph: Graph, catalog: PipelineCatalog, version: Version) -> Launch:
    news = ""
    if version.taken:
        built = [node.name for node in graph.queries if node.name not in version.taken]
        news = f"builds {', '.join(built)} again; takes over as they are: {', '.join(sorted(version.taken))}"
    return Launch(loaded=loaded, graph=graph, catalog=catalog, version=version.number, news=news)


def _launch_saved(name: str, tables_dir: str) -> Launch:
    catalog = PipelineCatalog.open(tables_dir, name)
    live = catalog.live
    if live is None:
        raise OperatorError(f"{name}: no version is live; run its file")
    if not catalog.code(live.number).whole:
        raise OperatorError(
            f"{name}: a process died while it changed the code of version {live.number}; "
            f"run it from its file: headrace pipeline run FILE --accept-change"
        )
    file, beside = catalog.code_files(live.number)
    loaded = load(file, pipeline=name, beside=beside)
    return Launch(loaded=loaded, graph=make_graph(loaded), catalog=catalog, version=live.number)


def _changed(loaded: LoadedPipeline, catalog: PipelineCatalog, version: int) -> str:
    """Which files differ from those of a version, in words; empty when none does."""
    main = os.path.basename(loaded.file)
    names = changed_files(catalog.code(version), loaded.version_code, main)
    return (
        f"{', '.join(names[:CHANGED_SHOWN_MAX])}{', …' if len(names) > CHANGED_SHOWN_MAX else ''} changed"
        if names
        else ""
    )


def table_names(graph: Graph) -> list[str]:
    return [node.name for node in graph.tables]


def _lease(catalog: PipelineCatalog, version: int) -> Lease:
    return Lease(f"{catalog.layout.version_dir(version)}/{LEASE_NAME}")


@contextmanager
def exclusive(catalog: PipelineCatalog, version: int) -> Iterator[Callable[[], str | None]]:
    """Only one process runs a version; whoever comes second is told who was first. What it gives says why to stop."""
    if is_url(catalog.layout.root):
        lease = _lease(catalog, version)
        if (other := lease.take()) is not None:
            raise OperatorError(
                f"{catalog.pipeline}: version {version} is already run by process {other.pid} on {other.host}; "
                f"stop that one there with: headrace pipeline stop {catalog.pipeline}"
            )
        with lease.kept():
            yield lambda: lease.lost
        return
    path = os.path.join(catalog.layout.version_dir(version), LOCK_NAME)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress = read_progress(catalog.layout.run_file(version))
            who = f" by process {progress.pid}" if progress is not None else ""
            raise OperatorError(
                f"{catalog.pipeline}: version {version} is already run{who}; "
                f"stop that one with: headrace pipeline stop {catalog.pipeline}"
            ) from None
        yield lambda: None
    finally:
        os.close(descriptor)


def keep_running(catalog: PipelineCatalog, version: int, keep: bool) -> None:
    """Says, before another version becomes live, whether a run of this one goes on beside it."""
    path = os.path.join(catalog.layout.version_dir(version), KEEP_NAME)
    storage_of(path).write(path, KEEP if keep else END)


def is_kept_running(catalog: PipelineCatalog, version: int) -> bool:
    path = os.path.join(catalog.layout.version_dir(version), KEEP_NAME)
    return storage_of(path).read(path) == KEEP


def is_running(catalog: PipelineCatalog, version: int) -> bool:
    """Whether some process holds the version's lock."""
    if is_url(catalog.layout.root):
        return _lease(catalog, version).holder() is not None
    path = os.path.join(catalog.layout.version_dir(version), LOCK_NAME)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
