"""The console producer and consumer: what they do beyond what the documents show."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from headrace_process import HeadraceProcess
from records import read, send
from tool_process import BIN, Running, Terminal, ok, run
from waits import WAIT_MS_MAX, WAIT_S_MAX

MakeTopic = Callable[..., str]
StartHeadrace = Callable[..., HeadraceProcess]
PRODUCER, CONSUMER = "kafka-console-producer.sh", "kafka-console-consumer.sh"


@pytest.fixture
def here(bootstrap: str) -> tuple[str, str]:
    return ("--bootstrap-server", bootstrap)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_written_with_each_codec_and_read_again(
    here: tuple[str, str], make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic()
    lines = [f"line {number} of many that look alike" for number in range(100)]
    flag = ("--compression-codec", codec)
    ok(PRODUCER, *here, "--topic", topic, *flag, stdin="\n".join(lines) + "\n")
    read_all = (
        "--topic",
        topic,
        "--partition",
        0,
        "--offset",
        "earliest",
        "--max-messages",
        100,
        "--timeout-ms",
        WAIT_MS_MAX,
    )
    assert ok(CONSUMER, *here, *read_all).lines == lines


def test_the_codec_is_gzip_when_none_is_named(here: tuple[str, str], bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    ok(PRODUCER, *here, "--topic", topic, "--compression-codec", "--sync", stdin="x\n")
    assert read(bootstrap, topic, 1) == [(None, b"x")]


def test_bytes_that_are_no_text_pass_through_unchanged(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    line = bytes(byte for byte in range(256) if byte not in b"\n\r")
    ok(PRODUCER, *here, "--topic", topic, stdin=line + b"\n")
    assert read(bootstrap, topic, 1) == [(None, line)]
    command = [f"{BIN}/{CONSUMER}", *here, "--topic", topic, "--partition", "0", "--offset", "0", "--max-messages", "1"]
    assert subprocess.run(command, capture_output=True, timeout=WAIT_S_MAX, check=True).stdout == line + b"\n"


def test_the_last_line_counts_without_its_newline(bootstrap: str, here: tuple[str, str], make_topic: MakeTopic) -> None:
    topic = make_topic()
    ok(PRODUCER, *here, "--topic", topic, stdin="one\r\ntwo")
    assert read(bootstrap, topic, 2) == [(None, b"one"), (None, b"two")]


def test_the_same_key_goes_to_the_partition_that_java_would_choose(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic
) -> None:
    from murmur2 import partition_of

    topic = make_topic(partitions=5)
    keyed = ("--property", "parse.key=true", "--property", "key.separator=,")
    ok(PRODUCER, *here, "--topic", topic, *keyed, stdin="".join(f"key-{n},{n}\n" for n in range(20)))
    shown = ("--property", "print.partition=true", "--property", "print.key=true")
    read_all = ("--topic", topic, "--from-beginning", "--max-messages", 20, "--timeout-ms", WAIT_MS_MAX)
    for line in ok(CONSUMER, *here, *read_all, *shown).lines:
        partition, key, _ = line.split("\t")
        assert partition == f"Partition:{partition_of(key.encode(), 5)}"


def test_a_prompt_is_shown_at_a_terminal_only_and_ctrl_c_keeps_what_was_typed(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Terminal(PRODUCER, *here, "--topic", topic) as terminal:
        terminal.read_until(">")
        terminal.type("typed\n")
        terminal.read_until("typed\r\n>")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.screen
    assert read(bootstrap, topic, 1) == [(None, b"typed")]
    assert ok(PRODUCER, *here, "--topic", topic, stdin="piped\n").out == ""


def test_what_was_read_is_sent_when_the_producer_is_stopped(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Terminal(PRODUCER, *here, "--topic", topic, "--timeout", 60_000) as terminal:
        terminal.read_until(">")  # else the terminal itself would echo the line before
        terminal.type("waits for others to join\n")
        terminal.read_until("join\r\n>")  # the next prompt: the line is in the producer's hands
        terminal.kill(signal.SIGTERM)
        assert terminal.end() == 143
    assert "Error" not in terminal.screen
    assert read(bootstrap, topic, 1) == [(None, b"waits for others to join")]


def test_a_terminal_shows_what_comes_while_it_comes(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Terminal(CONSUMER, *here, "--topic", topic, "--from-beginning") as terminal:
        for word in ("first", "second"):
            send(bootstrap, topic, [word])
            terminal.read_until(f"{word}\r\n")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert terminal.screen.endswith("Processed a total of 2 messages\r\n")


def test_a_group_goes_on_where_it_stopped_and_loses_nothing(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    send(bootstrap, topic, (f"{number:01000}" for number in range(1000)))
    read_some = ("--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", WAIT_MS_MAX)

    def numbers(text: str) -> list[int]:
        return [int(line) for line in text.splitlines()]

    assert numbers(ok(CONSUMER, *here, *read_some, "--max-messages", 3).out) == [0, 1, 2]
    # Whoever reads its output goes away, with more printed than a pipe holds: what was not read is still to come.
    command = f"{BIN}/{CONSUMER} {' '.join(map(str, (*here, *read_some)))} | head -2"
    piped = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert numbers(piped.stdout) == [3, 4]
    assert "Unable to write to standard out, closing consumer." in piped.stderr
    assert "Traceback" not in piped.stderr
    (again,) = numbers(ok(CONSUMER, *here, *read_some, "--max-messages", 1).out)
    assert again in (3, 4, 5)


def test_it_ends_when_nothing_comes_for_so_long(here: tuple[str, str], make_topic: MakeTopic) -> None:
    ran = ok(CONSUMER, *here, "--topic", make_topic(), "--partition", 0, "--timeout-ms", 300)
    assert (ran.out, ran.err) == ("", "Processed a total of 0 messages\n")


def test_topics_are_included_by_a_regular_expression(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    other = make_topic()
    send(bootstrap, topic, ["wanted"])
    send(bootstrap, other, ["unwanted"])
    for flag in ("--include", "--whitelist"):
        ran = ok(
            CONSUMER,
            *here,
            flag,
            f"{topic[:-1]}.",
            "--from-beginning",
            "--max-messages",
            1,
            "--timeout-ms",
            WAIT_MS_MAX,
        )
        assert ran.lines == ["wanted"]


def test_only_what_is_committed_is_read_when_that_is_asked_for(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = Producer({"log_level": 0, "bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S_MAX)
    producer.begin_transaction()
    producer.produce(topic, "aborted")
    producer.flush(WAIT_S_MAX)
    producer.abort_transaction(WAIT_S_MAX)
    for value in ("committed", "last"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.commit_transaction(WAIT_S_MAX)
    read_all = ("--topic", topic, "--partition", 0, "--offset", "earliest", "--timeout-ms", WAIT_MS_MAX)
    assert ok(CONSUMER, *here, *read_all, "--max-messages", 3).lines == ["aborted", "committed", "last"]
    committed = ok(CONSUMER, *here, *read_all, "--max-messages", 2, "--isolation-level", "read_committed")
    assert committed.lines == ["committed", "last"]


def test_a_record_that_cannot_be_printed_ends_it_or_is_skipped(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, topic, ["no number"])
    longs = ("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer")
    send(bootstrap, topic, ["\0\0\0\0\0\0\0\7"])
    read_all = ("--topic", topic, "--partition", 0, "--offset", "earliest", "--timeout-ms", WAIT_MS_MAX, *longs)
    ran = run(CONSUMER, *here, *read_all)
    assert ran.exit == 1
    assert "Size of data received by the deserializer is not 8: it is 9" in ran.err
    ran = ok(CONSUMER, *here, *read_all, "--max-messages", 2, "--skip-message-on-error")
    assert ran.lines == ["7"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "Exactly one of the following arguments is required: [topic], [include]"),
        (("--topic", "t", "--offset", "3"), "The partition is required when offset is specified."),
        (("--topic", "t", "--partition", "0", "--offset", "-5"), "The provided offset value '-5' is incorrect."),
        (
            ("--topic", "t", "--partition", "0", "--group", "g"),
            "Options group and partition cannot be specified together.",
        ),
        (
            ("--topic", "t", "--from-beginning", "--consumer-property", "auto.offset.reset=latest"),
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please remove one option",
        ),
        (
            ("--topic", "t", "--group", "a", "--consumer-property", "group.id=b"),
            "The group ids provided in different places",
        ),
        (
            ("--topic", "t", "--formatter", "my.own.Formatter"),
            "--formatter my.own.Formatter: Java classes cannot be loaded",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(here: tuple[str, str], flags: tuple[str, ...], said: str) -> None:
    ran = run(CONSUMER, *here, *flags)
    assert ran.exit == 1
    (line,) = ran.err.splitlines()
    assert line.startswith(said)


def test_settings_come_from_a_file_and_the_command_line_wins(
    bootstrap: str, here: tuple[str, str], make_topic: MakeTopic, group: str, tmp_path: object
) -> None:
    topic = make_topic()
    send(bootstrap, topic, ["x"])
    file = f"{tmp_path}/consumer.properties"
    with open(file, "w") as out:
        out.write(f"group.id={group}\nauto.offset.reset=latest\n")
    flags = ("--consumer.config", file, "--consumer-property", "auto.offset.reset=earliest")
    ran = ok(CONSUMER, *here, "--topic", topic, *flags, "--max-messages", 1, "--timeout-ms", WAIT_MS_MAX)
    assert ran.lines == ["x"]
    described = ok("kafka-consumer-groups.sh", *here, "--describe", "--group", group)
    assert described.lines[-1].split()[3] == "1"


def test_the_internal_topics_are_shown_as_json(
    here: tuple[str, str], bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    import json

    topic = make_topic()
    send(bootstrap, topic, ["x"])
    ok(CONSUMER, *here, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", 1)
    formatter = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    read_all = ("--topic", "__consumer_offsets", "--from-beginning", "--formatter", formatter)
    with Running(CONSUMER, *here, *read_all) as reading:
        reading.read_until(group)
        reading.read_until("\n", after=group)
        reading.end()
    mine = [record for record in map(json.loads, reading.out.splitlines()) if record["key"]["data"]["group"] == group]
    assert mine[-1]["key"] == {"type": 1, "data": {"group": group, "topic": topic, "partition": 0}}
    assert mine[-1]["value"]["data"]["offset"] == 1


def test_the_consumer_ends_cleanly_on_sigterm(bootstrap: str, here: tuple[str, str], make_topic: MakeTopic) -> None:
    topic = make_topic()
    send(bootstrap, topic, ["x"])
    with Running(CONSUMER, *here, "--topic", topic, "--from-beginning", "--enable-systest-events") as consumer:
        consumer.read_until("x\n")
        assert consumer.end(signal.SIGTERM) == 143
    assert consumer.out == "x\nshutdown_complete\n"
    assert consumer.err == "Processed a total of 1 messages\n"
