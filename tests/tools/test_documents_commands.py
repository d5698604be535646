"""Every command of the documents, as it is printed there. The rows are those of the documents' index.

Only addresses and names of topics and groups are replaced: the broker is shared by all tests.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from ports import reserved_port
from records import read, send
from tool_process import Running, Terminal, ok, printed, run
from topic_setup import describe, fresh_name
from waits import WAIT_MS_MAX, eventually

MakeTopic = Callable[..., str]


def without_zookeeper(command: str) -> str:
    """The same command with the flag that replaced --zookeeper."""
    return re.sub(r"--zookeeper \S+", "--bootstrap-server localhost:9092", command)


# Row 1: zookeeper-server-start.sh


def zookeeper_properties(folder: Path, port: int) -> Path:
    """The file that Kafka comes with, with `dataDir=` changed as documents 002 and 003 say, and the port."""
    file = folder / "config" / "zookeeper.properties"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"""# the directory where the snapshot is stored.
dataDir={folder}/data/zookeeper
# the port at which the clients will connect
clientPort={port}
# disable the per-ip limit on the number of connections since this is a non-production config
maxClientCnxns=0
# Disable the adminserver by default to avoid port conflicts.
admin.enableServer=false
# admin.serverPort=8080
"""
    )
    return file


def test_row_1_a_zookeeper_in_the_foreground(tmp_path: Path) -> None:
    with reserved_port() as port:
        file = zookeeper_properties(tmp_path, port)
        with Running("zookeeper-server-start.sh", file) as server:
            server.read_until(f"listens on 127.0.0.1:{port}")
            ok("zookeeper-shell.sh", f"127.0.0.1:{port}", "create", "/kept")
            assert server.end() == 0
            assert server.err == ""
        with Running("zookeeper-server-start.sh", file) as server:
            server.read_until(f"listens on 127.0.0.1:{port}")
            assert ok("zookeeper-shell.sh", f"127.0.0.1:{port}", "ls", "/").lines[-1] == "[kept, zookeeper]"
            assert server.end() == 0
    assert (tmp_path / "data" / "zookeeper" / "version-2").is_dir()


def test_row_1_a_zookeeper_in_the_background(tmp_path: Path) -> None:
    with reserved_port() as port:
        file = zookeeper_properties(tmp_path, port)
        ok("zookeeper-server-start.sh", "-daemon", file, cwd=tmp_path)
        try:
            assert ok("zookeeper-shell.sh", f"127.0.0.1:{port}", "ls", "/").lines[-1] == "[zookeeper]"
        finally:
            _stop(_listener(port))
        assert "The keeper stopped cleanly" in (tmp_path / "logs" / "zookeeper.out").read_text()


# Row 2: kafka-server-start.sh


def server_properties(folder: Path, port: int, broker_id: int = 0) -> Path:
    """The file that Kafka comes with, as far as it sets anything, with `log.dirs=` changed as document 002 says."""
    file = folder / "config" / "server.properties"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"""# The id of the broker. This must be set to a unique integer for each broker.
broker.id={broker_id}
listeners=PLAINTEXT://127.0.0.1:{port}
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={folder}/data/kafka
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
    )
    return file


def test_row_2_the_server_starts_from_kafkas_own_file_and_stops_by_ctrl_c(tmp_path: Path, unused_port: int) -> None:
    file = server_properties(tmp_path, unused_port)
    with Running("kafka-server-start.sh", file, "--override", "num.partitions=3") as server:
        server.read_until(f"listens on 127.0.0.1:{unused_port}")
        address = f"127.0.0.1:{unused_port}"
        send(address, "made-by-writing", ["hello"])
        shown = ok("kafka-topics.sh", "--bootstrap-server", address, "--describe", "--topic", "made-by-writing")
        assert "PartitionCount: 3" in shown.out
        assert server.end() == 0
    assert (tmp_path / "data" / "kafka" / "made-by-writing-0").is_dir()


def test_row_2_three_servers_run_beside_each_other_in_the_background(tmp_path: Path) -> None:
    pids: list[int] = []
    with ExitStack() as stack:
        for number in range(3):
            port = stack.enter_context(reserved_port())
            file = server_properties(tmp_path / f"server-{number}", port, number)
            started = ok("kafka-server-start.sh", "-daemon", file, cwd=file.parent)
            pids.append(_listener(port))
            stack.callback(_stop, pids[-1])
            (warning,) = started.err.splitlines()
            assert warning.startswith(f"headrace: warning: zookeeper.connect=localhost:2181 ({file}:18): ")
            log = (file.parent / "logs" / "kafkaServer.out").read_text()
            assert f"listens on 127.0.0.1:{port}" in log
            shown = ok("kafka-broker-api-versions.sh", "--bootstrap-server", f"127.0.0.1:{port}")
            assert f"127.0.0.1:{port} (id: {number} rack: null" in shown.out


def _listener(port: int) -> int:
    """The process that listens on a port, by what the kernel says."""
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    wanted = f"0100007F:{port:04X}"
    inode = next(row.split()[9] for row in table if row.split()[1] == wanted and row.split()[3] == "0A")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(link.readlink().name == f"socket:[{inode}]" for link in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    raise AssertionError(f"nobody listens on {port}")


def _stop(pid: int) -> None:
    import os
    import signal

    os.kill(pid, signal.SIGTERM)

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    eventually(gone, f"process {pid} ends")


# Row 3


def test_row_3_the_topics_tool_alone_prints_its_usage() -> None:
    ran = run(*printed("bin/kafka-topics.sh", ""))
    assert ran.exit == 1
    for flag in ("--create", "--list", "--describe", "--delete", "--partitions", "--replication-factor", "--zookeeper"):
        assert flag in ran.err


# Rows 4, 5 and 14: the topics tool

CREATE = "kafka-topics.sh --zookeeper 127.0.0.1:2181 --topic first_topic --create --partitions 3 --replication-factor 1"
CREATE_TWO = (
    "bin/kafka-topics.sh --create --zookeeper localhost:2181 --replication-factor 1 --partitions 2 --topic ineurontopic"
)
LIST = "bin/kafka-topics.sh --list --zookeeper localhost:2181"
DESCRIBE = "kafka-topics.sh --zookeeper 127.0.0.1:2181 --describe"
DELETE = "kafka-topics.sh --zookeeper 127.0.0.1:2181 --topic second_topic --delete"
REPLICATED = (
    "bin/kafka-topics.sh --create --zookeeper localhost:2181 --replication-factor 3 --partitions 1 "
    "--topic my-replicated-topic"
)


@pytest.mark.parametrize("command", [CREATE, LIST, DESCRIBE, DELETE, REPLICATED])
def test_rows_4_and_5_without_a_zookeeper_one_line_says_what_to_write(command: str, unused_port: int) -> None:
    ran = run(*shlex.split(command.replace("2181", str(unused_port)).removeprefix("bin/")))
    assert (ran.exit, ran.out) == (1, "")
    (line,) = ran.err.splitlines()
    assert re.fullmatch(r"No ZooKeeper answers at \S+ \(.*\); write --bootstrap-server \S+:9092 instead", line)


def test_rows_4_and_5_a_topic_is_created_listed_described_and_deleted(bootstrap: str, topic: str) -> None:
    created = ok(*printed(without_zookeeper(CREATE), bootstrap, first_topic=topic))
    assert f"Created topic {topic}." in created.lines
    eventually(lambda: topic in ok(*printed(without_zookeeper(LIST), bootstrap)).lines, "it is listed")
    described = ok(*printed(without_zookeeper(DESCRIBE), bootstrap)).out
    assert re.search(rf"^Topic: {topic}\tTopicId: \S+\tPartitionCount: 3\tReplicationFactor: 1\t", described, re.M)
    for partition in range(3):
        assert re.search(
            rf"\tTopic: {topic}\tPartition: {partition}\tLeader: (\d+)\tReplicas: \1\tIsr: \1\t", described
        )
    ok(*printed(without_zookeeper(DELETE), bootstrap, second_topic=topic))
    eventually(lambda: topic not in ok(*printed(without_zookeeper(LIST), bootstrap)).lines, "it is gone")


def test_row_4_the_other_documents_create_a_topic_alike(bootstrap: str, topic: str, admin: AdminClient) -> None:
    ok(*printed(without_zookeeper(CREATE_TWO), bootstrap, ineurontopic=topic))
    eventually(lambda: (found := describe(admin, topic)) and len(found.partitions) == 2, "two partitions")


def test_row_14_more_replicas_than_brokers_are_refused_as_kafka_refuses_them(bootstrap: str) -> None:
    name = fresh_name("my-replicated-topic")
    words = printed(without_zookeeper(REPLICATED), bootstrap)
    ran = run(*(name if word == "my-replicated-topic" else word for word in words))
    assert ran.exit == 1
    (line,) = ran.lines
    assert line.startswith("Error while executing topic command : ")
    assert "replication factor of 3 cannot be reached because only 1 broker(s) are registered" in line


# Rows 8 to 11: the console tools

PRODUCE = "bin/kafka-console-producer.sh --broker-list localhost:9092 --topic test"
PRODUCE_FIRST = "kafka-console-producer.sh --broker-list 127.0.0.1:9092 --topic first_topic"
PRODUCE_ACKS = PRODUCE_FIRST + " --producer-property acks=all"
PRODUCE_KEYS = PRODUCE_FIRST + " --property parse.key=true --property key.separator=,"
CONSUME = "kafka-console-consumer.sh --bootstrap-server 127.0.0.1:9092 --topic first_topic"
CONSUME_ALL = "bin/kafka-console-consumer.sh --bootstrap-server localhost:9092  \n--topic test --from-beginning"
CONSUME_GROUP = CONSUME + " --group group1"
CONSUME_KEYS = CONSUME + " --from-beginning --property print.key=true --property key.separator=,"
QUICK = ("--consumer-property", "heartbeat.interval.ms=200")  # a rebalance is heard of sooner
MESSAGES = ("this is a test", "this is a message", "Hi mom")


def test_rows_8_and_11_lines_typed_at_the_prompt_are_read_from_the_beginning(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Terminal(*printed(PRODUCE, bootstrap, test=topic)) as terminal:
        for number, message in enumerate(MESSAGES, start=1):
            terminal.read_until(">" * number if number == 1 else f"{MESSAGES[number - 2]}\r\n>")
            terminal.type(message + "\n")
        terminal.read_until(f"{MESSAGES[-1]}\r\n>")
        terminal.type("\x04")  # the end of the input
        assert terminal.end() == 0
    # What the page shows, nothing else.
    assert terminal.screen.replace("\r\n", "\n").strip() == "\n".join(f">{each}" for each in MESSAGES) + "\n>"
    with Running(*printed(CONSUME_ALL, bootstrap, test=topic)) as consumer:
        consumer.read_until(MESSAGES[-1] + "\n")
        assert consumer.end() == 130
    assert consumer.out.splitlines() == list(MESSAGES)
    assert "Processed a total of 3 messages" in consumer.err


def test_row_9_acks_all_is_a_property_of_the_producer(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    ran = ok(*printed(PRODUCE_ACKS, bootstrap, first_topic=topic), stdin="one\ntwo\n")
    assert (ran.out, ran.err) == ("", "")
    assert read(bootstrap, topic, 2) == [(None, b"one"), (None, b"two")]


def test_rows_9_and_11_keys_are_parsed_and_printed(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    ok(*printed(PRODUCE_KEYS, bootstrap, first_topic=topic), stdin="alice,went, left\nbob,went right\n")
    assert read(bootstrap, topic, 2) == [(b"alice", b"went, left"), (b"bob", b"went right")]
    shown = ok(*printed(CONSUME_KEYS, bootstrap, first_topic=topic), "--max-messages", 2, "--timeout-ms", WAIT_MS_MAX)
    assert shown.lines == ["alice,went, left", "bob,went right"]


def test_row_10_writing_to_a_topic_that_does_not_exist_makes_it(
    bootstrap: str, topic: str, admin: AdminClient, is_headrace: bool
) -> None:
    ok(*printed(PRODUCE_FIRST, bootstrap, first_topic=topic), stdin="first\n")
    found = describe(admin, topic)
    assert found is not None
    assert {len(each.replicas) for each in found.partitions} == {1}
    if is_headrace:
        assert len(found.partitions) == 1


def test_row_11_a_consumer_reads_from_now_on(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    send(bootstrap, topic, ["before"])
    with Running(*printed(CONSUME, bootstrap, first_topic=topic)) as consumer:

        def begun() -> bool:
            """When what is written now arrives."""
            send(bootstrap, topic, ["after"])
            consumer.peek(0.1)
            return bool(consumer.out)

        eventually(begun, "what is written now is printed")
        consumer.end()
    assert consumer.out.startswith("after\n")
    assert "before" not in consumer.out


def test_row_11_two_consumers_of_a_group_share_what_comes(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic(partitions=2)
    command = (*printed(CONSUME_GROUP, bootstrap, first_topic=topic, group1=group), *QUICK)
    with Running(*command) as first, Running(*command) as second:
        eventually(lambda: _members(bootstrap, group) == [1, 1], "each has one of the two partitions")

        def each_has_got_some() -> bool:
            """Sends again: one that has its partition may not have found the end yet from which on it reads."""
            for partition in range(2):
                send(bootstrap, topic, [f"to {partition}"], partition=partition)
            for consumer in (first, second):
                consumer.peek(0.5)
            return all("to " in consumer.out for consumer in (first, second))

        eventually(each_has_got_some, "each prints what comes to its partition")
        assert {frozenset(consumer.out.split()) for consumer in (first, second)} == {
            frozenset({"to", "0"}),
            frozenset({"to", "1"}),
        }
        assert {consumer.end() for consumer in (first, second)} == {130}


def _members(bootstrap: str, group: str) -> list[int]:
    """How many partitions each member of the group has."""
    ran = run("kafka-consumer-groups.sh", "--bootstrap-server", bootstrap, "--describe", "--members", "--group", group)
    rows = [line.split() for line in ran.lines if line.startswith(group)]
    return sorted(int(row[-1]) for row in rows)


# Rows 12 and 13: groups

GROUPS = "kafka-consumer-groups.sh --bootstrap-server 127.0.0.1:9092"
LIST_GROUPS = GROUPS + " --list"
DESCRIBE_GROUP = GROUPS + " --describe --group group1"
RESET = GROUPS + "  --group group1 --reset-offsets --to-earliest --execute  --topic first_topic"
SHIFT = GROUPS + " --group group1 --reset-offsets --shift-by 2 --execute --topic first_topic"


def test_rows_12_and_13_a_group_is_listed_described_and_reset(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    send(bootstrap, topic, ["1", "2", "3", "4", "5"])
    names = {"first_topic": topic, "group1": group}
    consume = printed(CONSUME_GROUP, bootstrap, **names)
    assert ok(*consume, "--from-beginning", "--max-messages", 3, "--timeout-ms", WAIT_MS_MAX).lines == ["1", "2", "3"]
    assert group in ok(*printed(LIST_GROUPS, bootstrap)).lines

    def described() -> list[str]:
        ran = ok(*printed(DESCRIBE_GROUP, bootstrap, **names))
        assert f"Consumer group '{group}' has no active members." in ran.err
        titles, row = [line.split() for line in ran.lines if line]
        assert titles[3:6] == ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
        return row

    assert described() == [group, topic, "0", "3", "5", "2", "-", "-", "-"]
    assert ok(*printed(RESET, bootstrap, **names)).lines[-1].split() == [group, topic, "0", "0"]
    assert described()[3:6] == ["0", "5", "5"]
    assert ok(*printed(SHIFT, bootstrap, **names)).lines[-1].split() == [group, topic, "0", "2"]
    again = ok(*consume, "--max-messages", 1, "--timeout-ms", WAIT_MS_MAX)
    assert again.lines == ["3"]


# Row 53: the patterns of messaging, with the tools


def test_row_53_each_message_goes_to_one_of_the_receivers_of_a_group_and_to_every_group(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=2)
    # From the beginning of an empty topic: a receiver that has its partition may not have found its end yet.
    topic_flags = ("--topic", topic, "--from-beginning")
    consume = ("kafka-console-consumer.sh", "--bootstrap-server", bootstrap, *topic_flags, *QUICK)
    with (
        Running(*consume, "--group", group) as one,
        Running(*consume, "--group", group) as other,
        Running(*consume, "--group", f"{group}-2") as subscriber,
    ):
        eventually(lambda: _members(bootstrap, group) == [1, 1], "the first group shares the partitions")
        eventually(lambda: _members(bootstrap, f"{group}-2") == [2], "the second has both")
        wanted = [f"message-{number}" for number in range(10)]
        for number, message in enumerate(wanted):
            send(bootstrap, topic, [message], partition=number % 2)
        for consumer in (one, other, subscriber):
            consumer.read_until("message-")
        eventually(lambda: (one.peek(0.05), other.peek(0.05), _count(one) + _count(other) >= 10)[-1], "all came")
        eventually(lambda: (subscriber.peek(0.05), _count(subscriber) >= 10)[-1], "all came to the second group")
        for consumer in (one, other, subscriber):
            consumer.end()
    assert sorted(one.out.split() + other.out.split()) == wanted
    assert sorted(subscriber.out.split()) == wanted


def _count(consumer: Running) -> int:
    return len(consumer.out.splitlines())
