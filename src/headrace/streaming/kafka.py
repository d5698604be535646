"""The few questions that are asked of a broker outside Spark: is it there, which partitions, where do they end.

confluent-kafka does the asking. Every call has a time limit, and what goes wrong is one line.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.client.addresses import await_broker
from headrace.client.errors import AddressError, ClientError
from headrace.core.errors import OperatorError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ASK_S_MAX = 10.0
REACH_S_MAX = 1.5
SAMPLE_RECORDS_MAX = 1_000
SAMPLE_S_MAX = 10.0


class BrokerAwayError(OperatorError):
    """No broker answers. That may pass."""


class TopicMissingError(OperatorError):
    """A topic that is read is not there."""


def client_config(bootstrap: str, options: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """For librdkafka: it is silent, and gets the `kafka.` options that Spark's client gets and it knows as well."""
    config = {
        key.removeprefix("kafka."): value
        for key, value in options.items()
        if key.startswith(("kafka.security.", "kafka.sasl.mechanism", "kafka.ssl.ca.", "kafka.client."))
    }
    return {"bootstrap.servers": bootstrap, **config, "log_level": 0, "logger": _silent(), **more}


class Kafka:
    """One connection for one run. Not for use by several threads at once."""

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self._options = options or {}
        self._client: AdminClient | None = None

    @property
    def _admin(self) -> "AdminClient":
        if self._client is None:
            from confluent_kafka.admin import AdminClient

            self._client = AdminClient(client_config(self.bootstrap, self._options))
        return self._client

    def reach(self) -> None:
        """Returns once a broker takes a connection, or says within REACH_S_MAX that none does."""
        try:
            await_broker(self.bootstrap, REACH_S_MAX)
        except AddressError as error:
            raise OperatorError(f"--bootstrap {self.bootstrap!r}: write HOST:PORT, such as 127.0.0.1:9092") from error
        except ClientError as error:
            reason = str(error).partition("(")[2].partition(")")[0]
            raise BrokerAwayError(
                f"{self.bootstrap}: no broker answers ({reason}); start one with: headrace up, or correct --bootstrap"
            ) from error

    def check_topic(self, topic: str, place: object) -> int:
        """How many partitions a topic has; one that is not there is an error of the line that reads it."""
        count = self.partitions(topic)
        if not count:
            raise TopicMissingError(f"{place}: topic {topic!r} is not at {self.bootstrap}; create it or send to it")
        return count

    def partitions(self, topic: str) -> int:
        """How many a topic has; 0 when there is none of that name."""
        from confluent_kafka import KafkaException

        try:
            # All topics are asked for, since asking for one by its name may create it.
            metadata = self._admin.list_topics(timeout=ASK_S_MAX)
        except KafkaException as error:
            raise BrokerAwayError(
                f"{self.bootstrap}: no answer within {ASK_S_MAX:g} s ({error.args[0].str()}); "
                f"is the broker up? start one with: headrace up"
            ) from error
        found = metadata.topics.get(topic)
        return len(found.partitions) if found is not None and found.error is None else 0

    def ensure_topic(self, topic: str, *, like: str | None = None) -> None:
        """Creates a topic that is not there, with as many partitions as `like` has, else as the broker does."""
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        if self.partitions(topic):
            return
        count = (self.partitions(like) if like is not None else 0) or -1
        future = self._admin.create_topics([NewTopic(topic, count, -1)], operation_timeout=ASK_S_MAX)[topic]
        try:
            future.result(ASK_S_MAX * 2)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise OperatorError(f"{topic}: cannot be created: {error.args[0].str()}") from error

    def ends(self, topics: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The offset after the last committed record of each (topic, partition); what cannot be had is left out."""
        return self._offsets(topics, latest=True)

    def beginnings(self, topics: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return self._offsets(topics, latest=False)

    def _offsets(self, topics: Iterable[tuple[str, int]], *, latest: bool) -> dict[tuple[str, int], int]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec

        spec: Any = OffsetSpec.latest() if latest else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, partition): spec for topic, partition in topics}
        if not asked:
            return {}
        found = {}
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ASK_S_MAX
        )
        for place, future in answers.items():
            try:
                found[place.topic, place.partition] = future.result(ASK_S_MAX).offset
            except Exception:
                continue  # a broker that is away for a moment: the next look has it
        return found

    def sample(self, topic: str) -> list[bytes]:
        """The first values of every partition, at most SAMPLE_RECORDS_MAX in all."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        count = self.partitions(topic)
        places = [(topic, partition) for partition in range(count)]
        ends, firsts = self.ends(places), self.beginnings(places)
        left = {partition: ends.get((topic, partition), 0) - firsts.get((topic, partition), 0)
                for _, partition in places}  # fmt: skip
        wanted = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition, n in left.items() if n > 0]
        values: list[bytes] = []
        if not wanted:
            return values
        config = client_config(
            self.bootstrap,
            self._options,
            **{"group.id": "headrace-sample", "enable.auto.commit": False, "enable.partition.eof": True},
        )
        consumer = Consumer(config)
        try:
            consumer.assign(wanted)
            ended = 0
            while ended < len(wanted) and len(values) < SAMPLE_RECORDS_MAX:
                message = consumer.poll(SAMPLE_S_MAX)  # one at a time: `consume` would wait for more than there are
                if message is None:
                    break
                if message.error() is not None:
                    ended += 1
                elif (value := message.value()) is not None:
                    values.append(value)
        finally:
            consumer.close()
        return values[:SAMPLE_RECORDS_MAX]


def _silent() -> Any:
    import logging

    logger = logging.getLogger("headrace.kafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
