"""Which nodes a refresh builds again, and which it takes over from the live version as they are. No Spark.

A refresh is a version of which a part is new: the tables that were asked for and all that depends on them. The others
stay where they are, with their checkpoints, in the directory of the version that owns them. That is exact only if their
code is the owner's, and if what is built again can read their tables as they are: both are checked here.
"""

import os
from collections.abc import Iterable

from headrace.core.errors import OperatorError
from headrace.streaming.code_change import touched_names
from headrace.streaming.declarations import TableOutput, TableStream, ViewOutput
from headrace.streaming.delta_writes import CHANGE_FEED
from headrace.streaming.graph import Graph
from headrace.streaming.loading import LoadedPipeline
from headrace.streaming.schemas import schema_file
from headrace.tables.catalog import PipelineCatalog
from headrace.tables.reading import open_snapshot
from headrace.tables.storage import is_delta, is_url, storage_of
from headrace.tables.versions import Version


def rebuilt(graph: Graph, tables: Iterable[str]) -> frozenset[str]:
    """The nodes of these names, and whatever depends on them: readers, and all who write one table."""
    found = {node.name for node in graph.chosen(_known(graph, tables))}
    size = -1
    while size != len(found):
        size = len(found)
        for node in graph.queries:
            into = node.output.into if isinstance(node.output, TableOutput) else None
            if found & {*graph.upstream(node.name), *([into] if into is not None else [])}:
                found.add(node.name)
            if node.name in found and into is not None:
                found.add(into)
    return frozenset(found)


def _known(graph: Graph, tables: Iterable[str]) -> list[str]:
    names = list(tables)
    for name in names:
        if name in graph.nodes and isinstance(graph.nodes[name].output, ViewOutput):
            readers = [node.name for node in graph.queries if _reads_view(graph, node.name, name)]
            raise OperatorError(f"--refresh {name}: a view, which is not stored; name {' or '.join(readers)}")
    return names


def _reads_view(graph: Graph, node: str, view: str) -> bool:
    """Directly, or by way of other views."""
    work = [node]
    while work:
        for edge in graph.edges[work.pop()]:
            if edge.node == view:
                return True
            if edge.node is not None and isinstance(graph.nodes[edge.node].output, ViewOutput):
                work.append(edge.node)
    return False


def taken_over(
    loaded: LoadedPipeline, graph: Graph, catalog: PipelineCatalog, live: Version, tables: Iterable[str]
) -> dict[str, int]:
    """The nodes that are not built again, and the version in whose directory each of them lies."""
    if is_url(catalog.layout.root):
        raise OperatorError(
            f"{catalog.layout.tables_dir}: --refresh needs tables in a directory, since an object store has no links "
            f"from one version to another; replay the whole pipeline"
        )
    new = rebuilt(graph, tables)
    kept = [node.name for node in graph.queries if node.name not in new]
    _refuse_changed(loaded, graph, catalog, live, set(kept))
    for name in kept:
        _refuse_unreadable(graph, catalog, live, name, new)
    return {name: live.owner(name) for name in kept}


def _refuse_changed(
    loaded: LoadedPipeline, graph: Graph, catalog: PipelineCatalog, live: Version, kept: set[str]
) -> None:
    touched = touched_names(catalog.code(live.number), loaded.version_code)
    if touched is None:
        raise OperatorError(
            f"{catalog.pipeline}: which nodes a change of the code touches cannot be told (a module beside the file, "
            f"or a statement that names nothing, is not that of version {live.number}); replay the whole pipeline"
        )
    changed = touched & kept
    if roots := sorted(name for name in changed if not changed & set(graph.upstream(name))):
        more = " ".join(f"--refresh {name}" for name in roots)
        raise OperatorError(
            f"{catalog.pipeline}: {', '.join(roots)} cannot be taken over, the code is not that of version "
            f"{live.number}; add {more}, or replay the whole pipeline"
        )


def _refuse_unreadable(graph: Graph, catalog: PipelineCatalog, live: Version, name: str, new: frozenset[str]) -> None:
    """A table that is taken over must be there, and must be readable as the nodes that are built again read it."""
    output = graph.nodes[name].output
    if not isinstance(output, TableOutput) or output.into is not None:
        return
    path = catalog.layout.table_dir(live.owner(name), name)
    if not is_delta(path):
        raise OperatorError(
            f"{name}: version {live.number} has not written it yet, so there is nothing to take over; run it first, or "
            f"add --refresh {name}"
        )
    for node in sorted(new):
        for edge in graph.inlined_edges(node):
            given = edge.source if edge.node == name and isinstance(edge.source, TableStream) else None
            if given is not None and (given.change_feed or given.ignore_changes or given.ignore_deletes):
                raise OperatorError(
                    f"{node}: reads every change of {name}, of which a table that is taken over has only the last "
                    f"state; add --refresh {name}"
                )
    if graph.reads_changes_of(name):
        configuration = open_snapshot(path, name=name).table.metadata().configuration
        if configuration.get(CHANGE_FEED) != "true":
            raise OperatorError(f"{name}: keeps no changes, and the new code reads them; add --refresh {name}")


def files_taken(graph: Graph, catalog: PipelineCatalog, live: Version, taken: Iterable[str]) -> dict[str, bytes]:
    """The schemas that were inferred for topics which nodes read that are taken over."""
    directory, files = catalog.layout.version_dir(live.number), {}
    for topic in {topic.topic for node in taken for topic in graph.topics(node)}:
        name = schema_file(topic)
        path = os.path.join(directory, name)
        if (data := storage_of(path).read(path)) is not None:
            files[name] = data
    return files
