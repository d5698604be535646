"""Where the rows of a commit came from: the JSON that each commit bears as its `userMetadata`.

    {"headrace": {"pipeline": "shop", "version": 1, "node": "clean_orders", "batch": 12, "sources": [
        {"topic": "orders", "ranges": {"0": [100, 250], "1": [90, 180]}},      offsets from 100 up to, not with, 250
        {"table": "clean_orders", "versions": [3, 5]}]}}                       Delta versions 3, 4 and 5

Writers make it with `encode`, readers get it with `decode`. No IO.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEY = "headrace"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Offsets of a topic, a half-open range for each partition."""

    topic: str
    ranges: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """Delta versions of another table of the same pipeline version, first and last."""

    table: str
    versions: tuple[int, int]


Source = TopicSource | TableSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    pipeline: str
    version: int
    node: str
    batch: int
    sources: tuple[Source, ...] = ()

    def encode(self) -> str:
        return json.dumps(
            {
                KEY: {
                    "pipeline": self.pipeline,
                    "version": self.version,
                    "node": self.node,
                    "batch": self.batch,
                    "sources": [source_content(source) for source in self.sources],
                }
            },
            separators=(",", ":"),
        )


def decode(user_metadata: object) -> Provenance | None:
    """None for a commit that somebody else made; `userMetadata` is free text to them."""
    if not isinstance(user_metadata, str):
        return None
    try:
        content = json.loads(user_metadata)[KEY]
        return Provenance(
            pipeline=str(content["pipeline"]),
            version=int(content["version"]),
            node=str(content["node"]),
            batch=int(content["batch"]),
            sources=tuple(map(_source, content.get("sources", ()))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def source_content(source: Source) -> dict[str, Any]:
    if isinstance(source, TopicSource):
        return {
            "topic": source.topic,
            "ranges": {str(partition): list(offsets) for partition, offsets in sorted(source.ranges.items())},
        }
    return {"table": source.table, "versions": list(source.versions)}


def _source(content: Mapping[str, Any]) -> Source:
    if "topic" in content:
        ranges = {int(partition): (int(start), int(end)) for partition, (start, end) in content["ranges"].items()}
        return TopicSource(topic=str(content["topic"]), ranges=ranges)
    first, last = content["versions"]
    return TableSource(table=str(content["table"]), versions=(int(first), int(last)))
