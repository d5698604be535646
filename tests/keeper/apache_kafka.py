"""Brokers of Apache Kafka 3.9 in ZooKeeper mode, from Maven's jars: the strictest user that a keeper can have.

Each is a JVM with a small heap; the first leaves an archive of its classes, with which later ones start in half the
CPU time. What a broker logs is in its directory.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import maven
from class_data import ClassData
from maven import Artifact
from ports import reserved_port
from waits import WAIT_S_MAX

VERSION = "3.9.1"
_ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    Artifact("org.slf4j", "slf4j-simple", "1.7.36"),  # what a broker warns of is in its output
)
_SESSION_MS = 6000
_SETTINGS = {
    "num.network.threads": "1",
    "num.io.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "background.threads": "2",
    "log.cleaner.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
    "zookeeper.session.timeout.ms": str(_SESSION_MS),
    "zookeeper.connection.timeout.ms": "60000",
    "group.initial.rebalance.delay.ms": "0",
}


class Broker:
    def __init__(self, id: int, directory: Path, zookeeper: str, class_data: ClassData, port: int) -> None:
        self.id = id
        self.port = port
        self._directory = directory / f"broker-{id}"
        self._directory.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._class_data = class_data
        settings = {
            **_SETTINGS,
            "broker.id": str(id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": zookeeper,
            "log.dirs": str(self._directory / "logs"),
        }
        self._properties = self._directory / "server.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def start(self) -> None:
        quickly = ("-Xmx192m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1")
        class_path = os.pathsep.join(map(str, _jars()))
        more = self._class_data.leaving if self.id == 1 else []
        quickly += ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
        command = ["java", *quickly, *self._class_data.flags, *more, "-cp", class_path, "kafka.Kafka"]
        with open(self._directory / "out", "ab") as out:
            self._process = subprocess.Popen(
                [*command, str(self._properties)], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self) -> str:
        return (self._directory / "out").read_text(errors="replace")[-6000:]

    def kill(self) -> None:
        assert self._process is not None
        assert self.running, f"broker {self.id} has ended by itself:\n{self.said()}"
        self._process.kill()
        self._process.wait(WAIT_S_MAX)

    def pause(self) -> None:
        """It stands still; to its session, this is silence."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def end(self) -> None:
        if self._process is not None and self.running:
            self._signal(signal.SIGCONT)
            self._class_data.end(self._process)


def _jars() -> list[Path]:
    return maven.jars(f"kafka-{VERSION}", _ARTIFACTS)


class KafkaCluster:
    """`with KafkaCluster(directory, keeper.hosts, 3) as cluster: cluster.bootstrap`"""

    def __init__(self, directory: Path, zookeeper: str, count: int) -> None:
        self._directory = directory
        self._zookeeper = zookeeper
        self._count = count
        self._stack = ExitStack()
        self.brokers: dict[int, Broker] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    def __enter__(self) -> KafkaCluster:
        class_data = ClassData(maven.cache(f"kafka-{VERSION}") / "broker.jsa")
        _jars()
        try:
            for id in range(1, self._count + 1):
                port = self._stack.enter_context(reserved_port())
                self.brokers[id] = Broker(id, self._directory, self._zookeeper, class_data, port)
            for broker in self.brokers.values():
                broker.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in sorted(self.brokers.values(), key=lambda each: -each.id):
            broker.end()
        self._stack.close()
