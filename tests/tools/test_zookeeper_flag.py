"""`--zookeeper` where a keeper answers: the brokers that are registered there are used, as Kafka's brokers register."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from ports import reserved_port
from records import send
from tool_process import ok, printed, run

from headrace.client.zookeeper.blocking import BlockingClient
from headrace.testing import Keeper


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    with Keeper() as running:
        yield running


def registration(address: str, *, listener: str = "PLAINTEXT", protocol: str = "PLAINTEXT") -> bytes:
    """What a broker of Kafka 3.9 writes to /brokers/ids/N."""
    host, _, port = address.rpartition(":")
    plain = listener == "PLAINTEXT"
    return json.dumps(
        {
            "listener_security_protocol_map": {listener: protocol},
            "endpoints": [f"{listener}://{address}"],
            "jmx_port": -1,
            "features": {},
            "host": host if plain else None,
            "timestamp": "1700000000000",
            "port": int(port) if plain else -1,
            "version": 5,
        }
    ).encode()


def register(keeper: Keeper, *registrations: bytes, chroot: str = "") -> None:
    with BlockingClient(keeper.hosts) as client:
        path = ""
        for name in f"{chroot}/brokers/ids".strip("/").split("/"):
            path += f"/{name}"
            client.create(path)
        for number, data in enumerate(registrations):
            client.create(f"{path}/{number}", data)


def test_the_registered_brokers_are_asked(keeper: Keeper, bootstrap: str, topic: str) -> None:
    register(keeper, registration(bootstrap))
    at = keeper.hosts
    ok("kafka-topics.sh", "--zookeeper", at, "--create", "--topic", topic, "--partitions", 2, "--replication-factor", 1)
    listed = ok("kafka-topics.sh", "--zookeeper", at, "--list")
    assert listed.lines == ok("kafka-topics.sh", "--bootstrap-server", bootstrap, "--list").lines
    assert topic in listed.lines
    assert "PartitionCount: 2" in ok("kafka-topics.sh", "--zookeeper", at, "--describe", "--topic", topic).out
    described = ok(
        "kafka-configs.sh", "--zookeeper", at, "--describe", "--entity-type", "topics", "--entity-name", topic
    )
    assert topic in described.out
    ok("kafka-topics.sh", "--zookeeper", at, "--delete", "--topic", topic)
    assert topic not in ok("kafka-topics.sh", "--zookeeper", at, "--list").lines


def test_rows_4_and_5_the_commands_of_the_documents(keeper: Keeper, bootstrap: str, topic: str) -> None:
    register(keeper, registration(bootstrap))

    def printed_command(command: str) -> list[str]:
        at = re.sub(r"(127\.0\.0\.1|localhost):2181", keeper.hosts, command)
        return ok(*printed(at, bootstrap, first_topic=topic, second_topic=topic)).lines

    create = "kafka-topics.sh --zookeeper 127.0.0.1:2181 --topic first_topic --create --partitions 3"
    assert printed_command(f"{create} --replication-factor 1") == [f"Created topic {topic}."]
    assert topic in printed_command("bin/kafka-topics.sh --list --zookeeper localhost:2181")
    described = "\n".join(printed_command("kafka-topics.sh --zookeeper 127.0.0.1:2181 --describe"))
    assert re.search(rf"Topic: {topic}\s.*PartitionCount: 3\s+ReplicationFactor: 1", described)
    printed_command("kafka-topics.sh --zookeeper 127.0.0.1:2181 --topic second_topic --delete")
    assert topic not in printed_command("bin/kafka-topics.sh --list --zookeeper localhost:2181")


def test_the_old_console_consumer_and_a_server_that_is_away(
    keeper: Keeper, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    register(keeper, registration(bootstrap))
    topic = make_topic()
    send(bootstrap, topic, ["hello"])
    with reserved_port() as away:
        at = f"127.0.0.1:{away},{keeper.hosts}"
        read = ("--topic", topic, "--from-beginning", "--max-messages", 1)
        assert ok("kafka-console-consumer.sh", "--zookeeper", at, *read).lines == ["hello"]


def test_a_chroot_and_a_listener_with_a_name_of_its_own(keeper: Keeper, bootstrap: str) -> None:
    register(keeper, registration(bootstrap, listener="INSIDE"), chroot="/kafka/one")
    listed = ok("kafka-topics.sh", "--zookeeper", f"{keeper.hosts}/kafka/one", "--list")
    assert listed.lines == ok("kafka-topics.sh", "--bootstrap-server", bootstrap, "--list").lines


def test_a_zookeeper_without_brokers_says_so(keeper: Keeper) -> None:
    for address, parent in ((keeper.hosts, "/brokers/ids"), (f"{keeper.hosts}/kafka", "/kafka/brokers/ids")):
        ran = run("kafka-topics.sh", "--zookeeper", address, "--list")
        assert ran.exit == 1
        assert ran.err == (
            f"The ZooKeeper at {address} knows no live broker in {parent}; start one, or correct the path\n"
        )


def test_no_zookeeper_at_all_says_what_to_write_instead() -> None:
    with reserved_port() as port:
        ran = run("kafka-topics.sh", "--zookeeper", f"127.0.0.1:{port}", "--list")
    assert ran.exit == 1
    assert ran.err == (
        f"No ZooKeeper answers at 127.0.0.1:{port} (connection refused); write --bootstrap-server 127.0.0.1:9092"
        " instead\n"
    )


def test_a_broker_that_speaks_only_tls_is_named(keeper: Keeper) -> None:
    register(keeper, registration("10.0.0.1:9093", listener="SSL", protocol="SSL"))
    ran = run("kafka-topics.sh", "--zookeeper", keeper.hosts, "--list")
    assert ran.exit == 1
    assert ran.err == (
        "The broker in /brokers/ids/0 has no plain listener (SSL://10.0.0.1:9093); write --bootstrap-server and"
        " --command-config instead\n"
    )


def test_a_node_that_is_no_registration_is_named(keeper: Keeper) -> None:
    register(keeper, b"nonsense")
    ran = run("kafka-topics.sh", "--zookeeper", keeper.hosts, "--list")
    assert ran.exit == 1
    assert ran.err == "/brokers/ids/0 is not a broker's registration: b'nonsense'\n"


def test_both_ways_to_name_a_cluster_are_one_too_many(bootstrap: str) -> None:
    ran = run("kafka-topics.sh", "--zookeeper", "127.0.0.1:2181", "--bootstrap-server", bootstrap, "--list")
    assert ran.exit == 1
    assert ran.err.startswith('Only one of "[bootstrap-server]" and "[zookeeper]" can name the cluster')
