"""A run as OpenLineage events, spec 2-0-2: what each node reads and writes, with the schema of what it writes.

Each node is a job, `<pipeline>.<node>`, with a run of its own under the run of the pipeline. Events are values made
here; `lineage_sink` sends them. A stream has no end of its own: a node that was told to stop is COMPLETE.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Any, Literal

from headrace.streaming.check import Checked
from headrace.streaming.declarations import Node, Static, TableOutput, TableStream, TopicOutput, TopicStream
from headrace.streaming.graph import Graph
from headrace.streaming.progress import NodeProgress, RunProgress
from headrace.tables.storage import is_url

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

EventType = Literal["START", "RUNNING", "COMPLETE", "FAIL"]
SCHEMA_URL = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets"
PRODUCER = f"urn:headrace:{package_version('headrace')}"


class Lineage:
    """The events of one run. `paths` tell where tables lie, by node or by the name that a source gives."""

    def __init__(
        self,
        graph: Graph,
        checked: Checked,
        version: int,
        *,
        bootstrap: str,
        own_path: Callable[[str], str],
        other_path: Callable[[str], str],
        topic_of: Callable[[Node], str],
    ) -> None:
        self._pipeline = graph.pipeline
        self._version = version
        self._run_id = str(uuid.uuid4())
        self._graph = graph
        self._checked = checked
        self._kafka = f"kafka://{bootstrap.split(',')[0]}"
        self._own_path, self._other_path, self._topic_of = own_path, other_path, topic_of
        self._runs = {node.name: str(uuid.uuid4()) for node in graph.queries}
        self._said: dict[str, tuple[EventType, int | None]] = {}

    def news(self, progress: RunProgress, *, ended: bool = False) -> Iterator[dict[str, Any]]:
        """One event per node that began, did a batch since the last look, ended or failed; none where nothing did."""
        for name, node in progress.nodes.items():
            before = self._said.get(name)
            if before is not None and before[0] in ("COMPLETE", "FAIL"):
                continue
            if before is None and node.status != "waiting":
                yield self._say("START", node)
            kind = _kind(node, ended=ended and node.status != "waiting")
            if kind is not None and self._said.get(name) != (kind, node.batch):
                yield self._say(kind, node)

    def _say(self, kind: EventType, node: NodeProgress) -> dict[str, Any]:
        self._said[node.name] = (kind, None if kind == "START" else node.batch)
        run_facets: dict[str, Any] = {
            "parent": {
                **_facet("ParentRunFacet", "1-2-0"),
                "run": {"runId": self._run_id},
                "job": {"namespace": self._namespace, "name": self._pipeline},
            },
            "processing_engine": {
                **_facet("ProcessingEngineRunFacet", "1-1-1"),
                "version": package_version("pyspark"),
                "name": "spark",
            },
        }
        if kind == "FAIL":
            run_facets["errorMessage"] = {
                **_facet("ErrorMessageRunFacet", "1-0-1"),
                "message": node.message,
                "programmingLanguage": "python",
            }
        return {
            "eventType": kind,
            "eventTime": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "producer": PRODUCER,
            "schemaURL": SCHEMA_URL,
            "run": {"runId": self._runs[node.name], "facets": run_facets},
            "job": {
                "namespace": self._namespace,
                "name": f"{self._pipeline}.{node.name}",
                "facets": {
                    "jobType": {
                        **_facet("JobTypeJobFacet", "2-0-4"),
                        "processingType": "STREAMING",
                        "integration": "HEADRACE",
                        "jobType": "QUERY",
                    }
                },
            },
            "inputs": list(self._inputs(node.name)),
            "outputs": list(self._outputs(node, kind)),
        }

    @property
    def _namespace(self) -> str:
        return f"headrace/v{self._version}"

    def _inputs(self, name: str) -> Iterator[dict[str, Any]]:
        for edge in self._graph.inlined_edges(name):
            match edge.source:
                case TopicStream() as topic:
                    yield {"namespace": self._kafka, "name": topic.topic}
                case TableStream(table=table) | Static(table=table) if edge.node is None:
                    yield _table(self._other_path(table))
                case _ if edge.node is not None:
                    yield _table(self._own_path(edge.node), self._checked.schema(edge.node))

    def _outputs(self, node: NodeProgress, kind: EventType) -> Iterator[dict[str, Any]]:
        writer = self._graph.nodes[node.name]
        output, schema = writer.output, self._checked.schema(node.name)
        if isinstance(output, TableOutput):
            dataset = _table(self._own_path(output.into or node.name), schema)
        elif isinstance(output, TopicOutput):
            dataset = {"namespace": self._kafka, "name": self._topic_of(writer), "facets": _schema(schema)}
        else:
            return
        if kind != "START" and node.rows_out is not None:
            statistics = _facet("OutputStatisticsOutputDatasetFacet", "1-0-2")
            dataset["outputFacets"] = {"outputStatistics": {**statistics, "rowCount": node.rows_out}}
        yield dataset


def _kind(node: NodeProgress, *, ended: bool) -> EventType | None:
    if node.status == "failed":
        return "FAIL"
    if node.status == "finished" or ended:
        return "COMPLETE"
    return "RUNNING" if node.batch is not None else None


def _table(path: str, schema: "StructType | None" = None) -> dict[str, Any]:
    """By OpenLineage's rules of naming: a store's URL is split behind the bucket."""
    dataset: dict[str, Any] = {"namespace": "file", "name": path}
    if is_url(path):
        scheme, _, rest = path.partition("://")
        bucket, _, key = rest.partition("/")
        dataset = {"namespace": f"{scheme}://{bucket}", "name": key}
    if schema is not None:
        dataset["facets"] = _schema(schema)
    return dataset


def _schema(schema: "StructType") -> dict[str, Any]:
    return {"schema": {**_facet("SchemaDatasetFacet", "1-2-0"), "fields": [_field(each) for each in schema.fields]}}


def _field(column: Any) -> dict[str, Any]:
    inner = getattr(column.dataType, "fields", None)
    if inner is None:
        return {"name": column.name, "type": column.dataType.simpleString()}
    return {"name": column.name, "type": "struct", "fields": [_field(each) for each in inner]}


def _facet(name: str, version: str) -> Mapping[str, str]:
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}/{version}/{name}.json#/$defs/{name}"}
