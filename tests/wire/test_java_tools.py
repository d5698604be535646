"""Kafka's own command-line tools, unmodified, against the broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from compressions import JAVA_CODECS
from java import JavaTools
from waits import WAIT_MS_MAX, eventually

pytestmark = pytest.mark.xdist_group("java")

MakeTopic = Callable[..., str]
TOOLS = "org.apache.kafka.tools."


def test_the_topics_tool_creates_lists_describes_alters_and_deletes(
    bootstrap: str, java: JavaTools, topic: str
) -> None:
    def topics(*args: object) -> str:
        return java.ok(TOOLS + "TopicCommand", "--bootstrap-server", bootstrap, *args).out

    created = topics("--create", "--topic", topic, "--partitions", 3, "--replication-factor", 1)
    assert f"Created topic {topic}." in created
    eventually(lambda: topic in topics("--list").splitlines(), f"{topic} is listed")
    described = eventually(lambda: topics("--describe", "--topic", topic), f"{topic} is described")
    assert "PartitionCount: 3\tReplicationFactor: 1" in described
    for partition in range(3):
        assert re.search(rf"Partition: {partition}\tLeader: (\d+)\tReplicas: \1\tIsr: \1\t", described)
    topics("--alter", "--topic", topic, "--partitions", 5)
    eventually(lambda: "PartitionCount: 5" in topics("--describe", "--topic", topic), "5 partitions")
    topics("--delete", "--topic", topic)
    eventually(lambda: topic not in topics("--list").splitlines(), f"{topic} is gone")


def test_the_topics_tool_says_why_a_topic_is_refused(bootstrap: str, java: JavaTools, topic: str) -> None:
    create = ("--bootstrap-server", bootstrap, "--create", "--topic", topic, "--replication-factor", 2)
    refused = java.run(TOOLS + "TopicCommand", *create)
    assert refused.exit == 1
    assert "replication factor" in refused.out.lower()


def test_the_console_tools_write_lines_with_keys_and_read_from_an_offset(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    here = ("--bootstrap-server", bootstrap, "--topic", topic)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=,")
    java.ok(TOOLS + "ConsoleProducer", *here, *keyed, stdin="a,this is a test\nb,this is a message\nc,Hi mom\n")
    printed = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=,")
    consumer = (TOOLS + "consumer.ConsoleConsumer", *here, *printed, "--partition", 0)
    everything = java.ok(*consumer, "--offset", "earliest", "--max-messages", 3, "--timeout-ms", WAIT_MS_MAX)
    assert everything.lines == ["a,this is a test", "b,this is a message", "c,Hi mom"]
    last = java.ok(*consumer, "--offset", 2, "--max-messages", 1, "--timeout-ms", WAIT_MS_MAX)
    assert last.lines == ["c,Hi mom"]


def test_the_configs_tool_sets_describes_and_removes_settings(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    def configs(*args: object) -> str:
        return java.ok("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *args).out

    configs("--alter", "--topic", topic, "--add-config", "retention.ms=7000,max.message.bytes=5000")
    eventually(lambda: "  retention.ms=7000" in configs("--describe", "--topic", topic), "the setting is made")
    configs("--alter", "--topic", topic, "--delete-config", "retention.ms")
    eventually(lambda: "retention.ms=" not in configs("--describe", "--topic", topic), "the setting is gone")
    assert "  max.message.bytes=5000" in configs("--describe", "--topic", topic)
    assert "  segment.bytes=1073741824" in configs("--describe", "--topic", topic, "--all")


def test_the_offset_and_delete_records_tools_agree(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    java.ok("JavaClient", "produce", bootstrap, topic, "none", 20)

    def offsets(time: str) -> list[int]:
        here = ("--bootstrap-server", bootstrap, "--topic", topic, "--time", time)
        lines = java.ok(TOOLS + "GetOffsetShell", *here).lines
        return [int(line.removeprefix(f"{topic}:{n}:")) for n, line in enumerate(sorted(lines))]

    assert offsets("earliest") == [0, 0]
    assert sum(offsets("latest")) == 20
    places = {"partitions": [{"topic": topic, "partition": 1, "offset": 3}], "version": 1}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(places))
    deleted = java.ok(TOOLS + "DeleteRecordsCommand", "--bootstrap-server", bootstrap, "--offset-json-file", file)
    assert f"partition: {topic}-1\tlow_watermark: 3" in deleted.out
    assert offsets("earliest") == [0, 3]


def test_the_log_dirs_tool_shows_where_a_partition_lies(bootstrap: str, java: JavaTools, make_topic: MakeTopic) -> None:
    topic = make_topic()
    java.ok("JavaClient", "produce", bootstrap, topic, "none", 20)
    here = ("--bootstrap-server", bootstrap, "--describe", "--topic-list", topic)
    (broker,) = json.loads(java.ok(TOOLS + "LogDirsCommand", *here).lines[-1])["brokers"]
    found = [partition for directory in broker["logDirs"] for partition in directory["partitions"]]
    assert [(each["partition"], each["offsetLag"], each["isFuture"]) for each in found] == [(f"{topic}-0", 0, False)]
    assert found[0]["size"] > 0


def test_every_api_that_the_broker_offers_is_one_that_kafka_knows(bootstrap: str, java: JavaTools) -> None:
    table = java.ok(TOOLS + "BrokerApiVersionsCommand", "--bootstrap-server", bootstrap).out
    assert f"{bootstrap} (id: " in table
    offered = set(re.findall(r"(\w+)\(\d+\): .*\[usable: \d+\]", table))
    assert offered >= {
        *("Produce", "Fetch", "ListOffsets", "Metadata", "FindCoordinator", "ApiVersions", "CreateTopics"),
        *("DeleteTopics", "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch", "DescribeConfigs"),
        *(
            "AlterConfigs",
            "DescribeLogDirs",
            "CreatePartitions",
            "IncrementalAlterConfigs",
            "DescribeCluster",
        ),
        "DescribeTopicPartitions",
    }
    assert "NOT USABLE" not in table
    assert "UNKNOWN" not in table


@pytest.mark.parametrize("codec", JAVA_CODECS)
def test_the_performance_tool_sends_every_record_by_each_codec(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(partitions=2)
    load = ("--num-records", 5000, "--record-size", 100, "--throughput", -1)
    settings = ("--command-property", f"compression.type={codec}", "enable.idempotence=true", "acks=all")
    here = ("--bootstrap-server", bootstrap, "--topic", topic)
    printed = java.ok(TOOLS + "ProducerPerformance", *here, *load, *settings).out
    assert "5000 records sent" in printed
    ends = java.ok(TOOLS + "GetOffsetShell", *here).lines
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends) == 5000


def test_the_verifiable_producer_has_every_record_acknowledged(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    ran = java.alone(
        TOOLS + "VerifiableProducer", "--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", 100
    )
    events = ran.objects
    acknowledged = [event for event in events if event["name"] == "producer_send_success"]
    assert [(event["value"], event["offset"]) for event in acknowledged] == [(str(n), n) for n in range(100)]
    (summary,) = [event for event in events if event["name"] == "tool_data"]
    assert (summary["sent"], summary["acked"]) == (100, 100)
