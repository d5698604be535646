"""What is asked of a Kafka cluster while its keeper and its brokers are killed, and what must be true in the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from waits import WAIT_MS_MAX, WAIT_S_MAX, eventually


class Tree:
    """The cluster's state as it stands in the keeper."""

    def __init__(self, hosts: str) -> None:
        self.client = KazooClient(hosts=hosts, timeout=10.0, connection_retry={"max_tries": -1, "max_delay": 0.5},
                                  command_retry={"max_tries": -1, "max_delay": 0.5})  # fmt: skip
        self.client.start(WAIT_S_MAX)

    def read(self, path: str) -> Any:
        """The JSON of a node; None if it is not there."""
        try:
            data = self.client.retry(self.client.get, path)[0]
        except NoNodeError:
            return None
        return json.loads(data) if data else {}

    def owner(self, path: str) -> int | None:
        """The session whose ephemeral node this is."""
        stat = self.client.retry(self.client.exists, path)
        return stat.ephemeralOwner if stat is not None else None

    def brokers(self) -> set[int]:
        return {int(name) for name in self.client.retry(self.client.get_children, "/brokers/ids")}

    def controller(self) -> int | None:
        found = self.read("/controller")
        return int(found["brokerid"]) if found else None

    def states(self, topic: str) -> dict[int, dict[str, Any]]:
        """Leader and in-sync replicas of each partition; only when all of them have a state."""
        assigned = self.read(f"/brokers/topics/{topic}")
        found = {}
        for number in (assigned or {}).get("partitions", {}):
            state = self.read(f"/brokers/topics/{topic}/partitions/{number}/state")
            if state is None:
                return {}
            found[int(number)] = state
        return found

    def await_brokers(self, *ids: int) -> None:
        eventually(lambda: self.brokers() == set(ids), f"brokers {ids} are registered")

    def await_in_sync(self, topic: str, ids: Iterable[int]) -> None:
        wanted = set(ids)

        def done() -> bool:
            states = self.states(topic)
            return bool(states) and all(set(s["isr"]) == wanted and s["leader"] in wanted for s in states.values())

        eventually(done, f"{topic} is in sync on {wanted}")

    def await_leaders(self, topic: str, among: Iterable[int]) -> None:
        wanted = set(among)

        def done() -> bool:
            states = self.states(topic)
            return bool(states) and all(s["leader"] in wanted for s in states.values())

        eventually(done, f"{topic} is led by {wanted}")

    def reassign(self, topic: str, replicas: Mapping[int, list[int]]) -> None:
        """As Kafka's tools did it: the controller watches this node, and removes it when all is done."""
        plan = [{"topic": topic, "partition": number, "replicas": ids} for number, ids in replicas.items()]
        asked = json.dumps({"version": 1, "partitions": plan}).encode()
        self.client.retry(self.client.create, "/admin/reassign_partitions", asked)

        def done() -> bool:
            assigned = self.read(f"/brokers/topics/{topic}")["partitions"]
            under_way = self.read("/admin/reassign_partitions")
            return under_way is None and all(assigned[str(number)] == ids for number, ids in replicas.items())

        eventually(done, f"{topic} is on {replicas}")

    def elect_preferred(self, topic: str, partitions: Iterable[int]) -> None:
        plan = [{"topic": topic, "partition": number} for number in partitions]
        asked = json.dumps({"version": 1, "partitions": plan}).encode()
        self.client.retry(self.client.create, "/admin/preferred_replica_election", asked)
        assigned = self.read(f"/brokers/topics/{topic}")["partitions"]
        eventually(
            lambda: all(s["leader"] == assigned[str(number)][0] for number, s in self.states(topic).items()),
            f"the first replicas of {topic} lead",
        )

    def close(self) -> None:
        self.client.stop()
        self.client.close()


class Load:
    """Produces, and knows what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500}
        self._producer = Producer(
            {**self._settings, "enable.idempotence": True, "message.timeout.ms": WAIT_MS_MAX, "linger.ms": 1}
        )
        self.acknowledged: dict[str, dict[int, list[int]]] = {}
        self._sent = 0
        self._failed: list[str] = []

    def _admin(self) -> AdminClient:
        """A new one each time: an old one goes on asking the controller that it knows, which may be dead."""
        return AdminClient(self._settings)

    def create(self, topic: str, partitions: int, replicas: int) -> None:
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas)

        def created() -> bool:
            admin = self._admin()  # kept, or it would go before its answer comes
            try:
                admin.create_topics([wanted], operation_timeout=30, request_timeout=30)[topic].result(WAIT_S_MAX)
            except KafkaException as error:
                return error.args[0].name() == "TOPIC_ALREADY_EXISTS"  # an earlier try, whose answer was lost
            return True

        eventually(created, f"{topic} is created")
        self.acknowledged[topic] = {number: [] for number in range(partitions)}

    def delete(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic], operation_timeout=30, request_timeout=30)[topic].result(WAIT_S_MAX)

    def produce(self, topic: str, count: int) -> None:
        """Hands them over; `flush` waits for the acknowledgements."""
        partitions = len(self.acknowledged[topic])
        for _ in range(count):
            number, self._sent = self._sent, self._sent + 1
            self._producer.produce(
                topic, b"%d" % number, partition=number % partitions,
                on_delivery=lambda error, message, number=number: self._told(error, message, number),
            )  # fmt: skip
        self._producer.poll(0)

    def _told(self, error: object, message: Any, number: int) -> None:
        if error is not None:
            self._failed.append(f"{number}: {error}")
        else:
            self.acknowledged[message.topic()][message.partition()].append(number)

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S_MAX) == 0, "records are not acknowledged"
        assert self._failed == []

    def check(self, topic: str) -> None:
        """Whatever was acknowledged is there, once, in its order."""
        self.flush()
        for partition, numbers in self.acknowledged[topic].items():
            assert self._read(topic, partition, len(numbers)) == sorted(numbers)

    def _read(self, topic: str, partition: int, count: int) -> list[int]:
        consumer = Consumer({**self._settings, "group.id": "check", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S_MAX)
            assert (low, high) == (0, count)
            found: list[int] = []
            while len(found) < count:
                batch = consumer.consume(count - len(found), timeout=WAIT_S_MAX)
                assert batch, f"{topic}-{partition}: {len(found)} of {count} records were read"
                for message in batch:
                    if message.error() is None:
                        found.append(int(message.value()))
            return found
        finally:
            consumer.close()
