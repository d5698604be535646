"""What clients may not do to the topics in which the coordinators keep their state."""

import pytest

from headrace.broker.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
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
