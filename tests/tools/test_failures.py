"""What goes wrong: bad flags, nobody there, something else there, a broker that goes away. One line, exit code 1."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from headrace_process import HeadraceProcess
from records import end_of, send
from tool_process import BIN, Running, long_enough, run
from waits import WAIT_MS_MAX, WAIT_S_MAX, eventually

StartHeadrace = Callable[..., HeadraceProcess]

# A command of each tool that would talk to a broker.
COMMANDS: dict[str, tuple[str, ...]] = {
    "kafka-topics.sh": ("--list",),
    "kafka-console-producer.sh": ("--topic", "t"),
    "kafka-console-consumer.sh": ("--topic", "t"),
    "kafka-consumer-groups.sh": ("--list",),
    "kafka-configs.sh": ("--describe", "--topic", "t"),
    "kafka-get-offsets.sh": (),
    "kafka-delete-records.sh": ("--offset-json-file", "OFFSETS"),
    "kafka-log-dirs.sh": ("--describe",),
    "kafka-broker-api-versions.sh": (),
    "kafka-transactions.sh": ("list",),
    "kafka-producer-perf-test.sh": ("--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "-1"),
    "kafka-consumer-perf-test.sh": ("--topic", "t", "--messages", "1"),
    "kafka-e2e-latency.sh": ("--topic", "t", "--num-records", "1", "--producer-acks", "1", "--record-size", "1"),
    "kafka-verifiable-producer.sh": ("--topic", "t", "--max-messages", "1"),
    "kafka-verifiable-consumer.sh": ("--topic", "t", "--group-id", "g", "--max-messages", "1"),
}
CONFIG_FLAG = {"kafka-get-offsets.sh": "--command-config"}


@pytest.fixture
def offsets_file(tmp_path: Path) -> Path:
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}]}')
    return file


def words(name: str, address: str, offsets: Path) -> list[str]:
    rest = [str(offsets) if word == "OFFSETS" else word for word in COMMANDS[name]]
    return [str(BIN / name), "--bootstrap-server", address, *rest]


def test_no_tool_hangs_when_there_is_no_broker(unused_port: int, offsets_file: Path, tmp_path: Path) -> None:
    quick = tmp_path / "quick.properties"
    quick.write_text("default.api.timeout.ms=300\n")
    for name in COMMANDS:
        address = f"127.0.0.1:{unused_port}"
        command, *flags = words(name, address, offsets_file)
        ran = run(command, *flags, "--command-config", quick)
        assert ran.exit == 1, name
        assert ran.err.splitlines() == [
            f"No broker answers at {address} (connection refused), tried for 0.3 s; start one, for "
            "example with `headrace up`, or correct --bootstrap-server"
        ], f"{name}: {ran.out}"


def test_a_broker_that_starts_a_moment_later_is_waited_for(
    start_headrace: StartHeadrace, unused_port: int, tmp_path: Path
) -> None:
    patient = tmp_path / "patient.properties"
    patient.write_text(f"default.api.timeout.ms={WAIT_MS_MAX}\n")
    flags = ("--bootstrap-server", f"127.0.0.1:{unused_port}", "--command-config", patient)
    with Running("kafka-topics.sh", *flags, "--list") as waiting:
        start_headrace(port=unused_port)
        assert waiting.end(None) == 0


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """Something that listens and is no broker: it answers every connection with these bytes, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(WAIT_S_MAX)
                    connection.recv(4096)
                    connection.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(WAIT_S_MAX)


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x04\0\0\0\x01", b"\0\0\0\x05\0\0"])
def test_what_is_no_broker_is_said_to_be_none(data: bytes) -> None:
    with answering(data) as address:
        ran = run("kafka-topics.sh", "--bootstrap-server", address, "--list")
    assert ran.exit == 1
    assert len(ran.err.splitlines()) == 1
    assert "unexpected" not in ran.err
    assert address in ran.err


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_flag_that_does_not_exist_is_named(name: str) -> None:
    ran = run(name, "--bogus-flag", "x")
    assert ran.exit == 1
    assert (ran.out, ran.err) == ("", f"bogus-flag is not a recognized option (see {name} --help)\n")


def test_a_wrong_address_is_said_to_be_one() -> None:
    for address in ("localhost", "localhost:port", ":9092", "localhost:99999", ""):
        ran = run("kafka-topics.sh", "--bootstrap-server", address, "--list")
        assert ran.exit == 1
        assert ran.err.startswith("Please provide valid host:port like host1:9091,host2:9092")


def test_a_settings_file_that_is_not_there_is_named(bootstrap: str, tmp_path: Path) -> None:
    missing = tmp_path / "none.properties"
    ran = run("kafka-topics.sh", "--bootstrap-server", bootstrap, "--list", "--command-config", missing)
    assert (ran.exit, ran.err) == (1, f"{missing}: no such file or directory; give the path of a .properties file\n")


def test_a_setting_that_nobody_knows_is_said_and_the_rest_goes_on(bootstrap: str, topic: str) -> None:
    setting = ("--producer-property", "bogus.setting=1")
    ran = run("kafka-console-producer.sh", "--bootstrap-server", bootstrap, "--topic", topic, *setting, stdin="x\n")
    assert ran.exit == 0
    assert ran.err == (
        "kafka-console-producer.sh: warning: the setting bogus.setting is not known here and has no effect\n"
    )
    ran = run(
        "kafka-console-producer.sh",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--producer-property",
        "acks=some",
    )
    assert ran.exit == 1
    assert len(ran.err.splitlines()) == 1


def test_an_unknown_topic_is_named(start_headrace: StartHeadrace) -> None:
    broker = start_headrace({"auto.create.topics.enable": "false"})
    here = ("--bootstrap-server", broker.bootstrap, "--topic", "no-such-topic")
    reader = run("kafka-console-consumer.sh", *here, "--timeout-ms", 500)
    assert reader.exit == 1
    assert "Topic no-such-topic did not exist for 500 ms; nothing was read" in reader.err
    quick = ("--producer-property", "delivery.timeout.ms=1500")
    writer = run("kafka-console-producer.sh", *here, *quick, stdin="lost?\n")
    assert writer.exit == 1
    assert "Error when sending message to topic no-such-topic with key: null, value: 5 bytes with error: " in writer.err


def test_a_reader_goes_on_when_the_broker_comes_back(start_headrace: StartHeadrace, unused_port: int) -> None:
    broker = start_headrace(port=unused_port)
    send(broker.bootstrap, "t", ["before"])
    read_all = ("--bootstrap-server", broker.bootstrap, "--topic", "t", "--from-beginning", "--group", "g")
    patient = (
        "--consumer-property",
        "default.api.timeout.ms=600000",
        "--consumer-property",
        "session.timeout.ms=300000",
    )
    with Running("kafka-console-consumer.sh", *read_all, *patient) as consumer:
        consumer.read_until("before\n")
        broker.stop()
        consumer.read_until("No broker answers any more; trying again for 600 s", on_err=True)
        again = HeadraceProcess(broker.data, {"group.initial.rebalance.delay.ms": "0"}, port=unused_port)
        try:
            send(again.bootstrap, "t", ["after"])
            consumer.read_until("after\n")
            assert consumer.end() == 130
        finally:
            again.stop()
    assert consumer.out.splitlines() == ["before", "after"]


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("kafka-console-consumer.sh", ("--from-beginning", "--consumer-property", "default.api.timeout.ms=500")),
        ("kafka-consumer-perf-test.sh", ("--messages", "9", "--command-property", "default.api.timeout.ms=500")),
        ("kafka-verifiable-consumer.sh", ("--group-id", "g", "--command-config", "FILE")),
    ],
)
def test_a_reader_ends_when_the_broker_stays_away(
    start_headrace: StartHeadrace, tmp_path: Path, name: str, flags: tuple[str, ...]
) -> None:
    broker = start_headrace()
    send(broker.bootstrap, "t", ["before"])
    file = tmp_path / "quick.properties"
    file.write_text("default.api.timeout.ms=500\n")
    given = [str(file) if flag == "FILE" else flag for flag in flags]
    with Running(name, "--bootstrap-server", broker.bootstrap, "--topic", "t", *given) as reader:
        reader.read_until("consumed" if "perf" in name else "before" if "console" in name else "records_consumed")
        broker.stop()
        assert reader.end(None) == 1
    assert "No broker answered for 0.5 s" in reader.err
    assert "Traceback" not in reader.err


def test_a_writer_says_what_was_not_acknowledged_when_the_broker_goes_away(start_headrace: StartHeadrace) -> None:
    broker = start_headrace()

    def said_with(delivery_ms: int) -> str | None:
        """The first line is acknowledged within that time, the second is not."""
        topic = f"t-{delivery_ms}"
        here = ("--broker-list", broker.bootstrap, "--topic", topic)
        quick = ("--producer-property", f"delivery.timeout.ms={delivery_ms}", "--sync")
        with Running("kafka-console-producer.sh", *here, *quick) as writer:
            writer.type("kept\n")
            eventually(lambda: end_of(broker.bootstrap, topic) == 1 or writer.ended, "the first line is in the topic")
            os.kill(broker.pid, signal.SIGSTOP)  # it is there, and silent
            try:
                writer.type("not kept\n")
                writer.read_until(f"Error when sending message to topic {topic} with key: null, value: ", on_err=True)
                writer.close_input()
                assert writer.end(None) == 1
            finally:
                os.kill(broker.pid, signal.SIGCONT)
        return None if "value: 4 bytes" in writer.err else writer.err

    said = long_enough(said_with, 2000)
    assert "value: 8 bytes" in said


def test_a_load_ends_when_the_broker_goes_away(start_headrace: StartHeadrace) -> None:
    broker = start_headrace()
    load = ("--topic", "t", "--num-records", "1000000", "--record-size", "100", "--throughput", "2000")
    props = ("--producer-props", "default.api.timeout.ms=500", "delivery.timeout.ms=1000", "linger.ms=0")
    address = ("--bootstrap-server", broker.bootstrap)
    with Running("kafka-producer-perf-test.sh", *address, *load, *props, "--reporting-interval", "100") as writer:
        writer.read_until("records/sec")
        broker.stop()
        assert writer.end(None) == 1
    assert "No broker answered for 0.5 s" in writer.err
    assert "Traceback" not in writer.err


def test_nobody_reading_the_output_is_no_failure_to_shout_about(bootstrap: str) -> None:
    command = f"{BIN}/kafka-get-offsets.sh --bootstrap-server {bootstrap} | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
