"""When the nodes of a run with `once` begin: a node that reads tables begins when those who write them have written.

What a node does after its write (quarantine, counts) nobody reads, and it takes as long as the write; so whoever reads
an appended table begins right after the first write to it. A reader that began so early is started again if the table
has grown since, which is the rare case: without a limit, all that is there is one batch. No Spark here.
"""

from collections.abc import Callable, Mapping, Sequence, Set

from headrace.streaming.declarations import TableOutput
from headrace.streaming.graph import Graph
from headrace.streaming.node_run import NodeRun


class OnceOrder:
    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[NodeRun],
        table_version: Callable[[str], int | None],
        appends: Set[str],
        whole: Set[str] = frozenset(),
    ) -> None:
        """`table_version` is asked by a node's name; `appends` are the nodes whose tables only grow, `whole` those that
        read a table as it is, not as a stream: a second start would give them nothing new."""
        self._nodes = nodes
        self._table_version = table_version
        self._appends = appends
        self._whole = whole
        self._before = {run.node.name: _before(graph, run) for run in nodes}
        self._seen: dict[str, Mapping[str, int | None]] = {}  # versions of what early readers read, as they began

    def may_begin(self, run: NodeRun) -> bool:
        before = self._upstream(run)
        if all(self._is_complete(each) for each in before):
            return True
        if run.node.name in self._whole or not all(
            self._is_complete(each) or self._has_written(each) for each in before
        ):
            return False
        self._seen[run.node.name] = self._versions(before)
        return True

    def again(self) -> list[NodeRun]:
        """Those who began early, have finished, and now find more in the tables that they read."""
        found: list[NodeRun] = []
        looking = True
        while looking:  # one that is complete now may make the one behind it complete
            looking = False
            for run in self._nodes:
                name, before = run.node.name, self._upstream(run)
                if name not in self._seen or not run.ended:
                    continue
                if any(each in found or not self._is_complete(each) for each in before):
                    continue
                seen, looking = self._seen.pop(name), True
                if run.progress.status == "finished" and self._versions(before) != seen:
                    found.append(run)
        return found

    def _is_complete(self, run: NodeRun) -> bool:
        """Whether its table will not grow any more: it has ended, and will not be started again."""
        return run.ended and run.node.name not in self._seen

    def _upstream(self, run: NodeRun) -> list[NodeRun]:
        return [each for each in self._nodes if each.node.name in self._before[run.node.name]]

    def _has_written(self, run: NodeRun) -> bool:
        return run.node.name in self._appends and run.written

    def _versions(self, runs: list[NodeRun]) -> dict[str, int | None]:
        return {run.node.name: self._table_version(run.node.name) for run in runs}


def _before(graph: Graph, run: NodeRun) -> set[str]:
    before = set(graph.upstream(run.node.name))
    output = run.node.output
    if isinstance(output, TableOutput) and output.into is not None:
        before.add(output.into)
    # Who fills a table back comes before who reads it.
    return before | {
        node.name
        for node in graph.queries
        if isinstance(node.output, TableOutput) and node.output.into in before and node.name != run.node.name
    }
