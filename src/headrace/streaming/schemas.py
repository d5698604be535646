"""The schemas of a version's topics: declared, or inferred once from the log and then kept beside its tables.

A schema that was inferred never changes for that version: records of another shape are quarantined, and a replay
infers again.
"""

import os

from headrace.core.errors import OperatorError
from headrace.streaming.declarations import PipelineError, TopicStream
from headrace.streaming.inference import infer_ddl
from headrace.streaming.kafka import Kafka
from headrace.streaming.parsing import Parser, parser_of
from headrace.tables.storage import storage_of

DIRECTORY = "_schemas"


def schema_file(topic: str) -> str:
    """Where the schema that was inferred for a topic lies in a version's directory."""
    return os.path.join(DIRECTORY, f"{topic}.ddl")


class Schemas:
    """`directory` is a version's, or None where there is none yet; with `keep` what is inferred is kept there."""

    def __init__(self, directory: str | None, kafka: Kafka, *, keep: bool = True) -> None:
        self._directory = directory
        self._kafka = kafka
        self._keep = keep
        self._parsers: dict[int, Parser] = {}

    def parser(self, topic: TopicStream) -> Parser:
        if id(topic) not in self._parsers:
            needs = topic.schema is None and topic.format == "json"
            self._parsers[id(topic)] = parser_of(topic, self._pinned(topic) if needs else topic.schema)
        return self._parsers[id(topic)]

    def _pinned(self, topic: TopicStream) -> str:
        path = os.path.join(self._directory, schema_file(topic.topic)) if self._directory is not None else None
        kept = storage_of(path).read(path) if path is not None else None
        if kept is not None:
            return kept.decode().strip()
        try:
            ddl = infer_ddl(self._kafka.sample(topic.topic))
        except OperatorError as error:
            raise PipelineError(
                topic.place, f"topic {topic.topic!r}: has no schema, and none could be inferred: {error}"
            ) from error
        if ddl is None:
            raise PipelineError(
                topic.place,
                f"topic {topic.topic!r}: has no schema and no JSON record to infer one from; "
                f"give schema=, or send a record first",
            )
        if path is not None and self._keep:
            storage_of(path).write(path, f"{ddl}\n".encode())
        return ddl
