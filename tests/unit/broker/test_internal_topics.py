"""What clients may not do to the topics in which the coordinators keep their state."""

import pytest

from headrace.coordinator.group_records import CommittedOffset
from headrace.coordinator.placing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from headrace.protocol import error_codes as codes

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37


@pytest.fixture(params=[OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def topic(request, node):
    node.coordination.make_topic(request.param)
    return node.topics.get(request.param)


@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by id"])
def test_an_internal_topic_cannot_be_deleted(node, client, topic, by_id):
    asked = {"name": None if by_id else topic.name, "topic_id": topic.id if by_id else None}
    answer = client.ask(node, DELETE_TOPICS, topics=[asked], timeout=1000).responses[0]
    assert answer.error_code == codes.INVALID_TOPIC_EXCEPTION
    assert answer.error_message.startswith(f"Topic '{topic.name}' is internal and cannot be deleted; ")
    assert node.topics.get(topic.name) is topic


def test_other_topics_of_the_same_request_are_deleted(node, client, topic):
    client.create(node, "orders")
    asked = [{"name": name, "topic_id": None} for name in (topic.name, "orders")]
    answers = client.ask(node, DELETE_TOPICS, topics=asked, timeout=1000).responses
    assert [answer.error_code for answer in answers] == [codes.INVALID_TOPIC_EXCEPTION, codes.NONE]
    assert node.topics.get("orders") is None


@pytest.mark.parametrize("validate_only", [False, True])
def test_an_internal_topic_does_not_grow(node, client, topic, validate_only):
    asked = [{"name": topic.name, "count": 60, "assignments": None}]
    answer = client.ask(node, CREATE_PARTITIONS, topics=asked, timeout=1000, validate_only=validate_only).results[0]
    assert answer.error_code == codes.INVALID_TOPIC_EXCEPTION
    assert "num.partitions" in answer.error_message
    assert len(topic.partitions) == 50


# ── coordinators whose topic is not there yet ────────────────────────────────────────────────────────────────────────


def init(node):
    """Asks for a producer id; its answers are in the list, once the turn has ended."""
    answers = []
    node.transactions.init_producer_id("shop", 60_000, None, answers.append)
    return answers


def end_turn(node):
    node._end_of_turn()
    node.reactor.run_pending()


def test_whoever_asks_a_coordinator_first_makes_its_topic(node, client):
    taken = init(node)
    assert client.create(node, TRANSACTIONS_TOPIC, 7).error_code == codes.TOPIC_ALREADY_EXISTS
    end_turn(node)
    assert [answer["error_code"] for answer in taken] == [codes.NONE]
    written = [each.led.end_offset for each in node.topics.get(TRANSACTIONS_TOPIC).partitions]
    assert [index for index, end in enumerate(written) if end] == [partition_for("shop", 50)]


@pytest.mark.parametrize("partitions", [1, 7])
def test_an_id_follows_the_partitions_of_a_topic_that_a_client_made(node, client, partitions):
    assert client.create(node, TRANSACTIONS_TOPIC, partitions).error_code == codes.NONE
    taken = init(node)
    end_turn(node)
    assert [answer["error_code"] for answer in taken] == [codes.NONE]
    written = [each.led.end_offset for each in node.topics.get(TRANSACTIONS_TOPIC).partitions]
    assert [index for index, end in enumerate(written) if end] == [partition_for("shop", partitions)]


def test_a_group_follows_the_partitions_of_a_topic_that_a_client_made(node, client):
    groups = node.groups  # placed in 50 partitions until now
    client.create(node, OFFSETS_TOPIC, 1)
    client.create(node, "orders")
    committed = []
    entries = [("orders", 0, CommittedOffset(5, commit_timestamp_ms=node.clock.now_ms()))]
    groups.commit_offsets("shop", "", -1, None, entries, committed.append, version=5, producer=(7, 0))
    end_turn(node)
    assert committed == [[codes.NONE]]
    groups.transaction_ended(7, 0, True)
    assert groups.shard("shop").table.offsets.get("shop", "orders", 0).offset == 5
