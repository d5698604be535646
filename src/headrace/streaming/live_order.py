"""When the nodes of a live run begin: a reader of a table that nothing has been written to waits for the first write.

Nodes that begin all at once take the cores from those whose tables the others read, and the readers' first batches
find nothing. A reader waits no longer than until the writer has found out that there is nothing to write, or has
failed; tables of an earlier run have rows, so after a restart nobody waits. No Spark here.
"""

from collections.abc import Callable, Sequence

from headrace.streaming.graph import Graph
from headrace.streaming.node_run import NodeRun


class LiveOrder:
    def __init__(self, graph: Graph, nodes: Sequence[NodeRun], is_empty: Callable[[str], bool]) -> None:
        """`is_empty` is asked once for each node, whether nothing was ever written to its table."""
        self._upstream = {run.node.name: set(graph.upstream(run.node.name)) for run in nodes}
        self._awaited = {run.node.name: run for run in nodes if is_empty(run.node.name)}

    def may_begin(self, run: NodeRun) -> bool:
        for name in [name for name, awaited in self._awaited.items() if _has_begun(awaited)]:
            del self._awaited[name]
        return not any(name in self._awaited for name in self._upstream.get(run.node.name, ()))


def _has_begun(run: NodeRun) -> bool:
    return run.written or run.reported or run.ended or run.progress.restarts > 0
