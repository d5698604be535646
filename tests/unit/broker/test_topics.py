import errno
import gc
import os
import shutil
import uuid

import pytest

from headrace.broker.catalog import JOURNAL_NAME
from headrace.core.errors import PeerError
from headrace.core.files import Disk
from headrace.protocol import error_codes as codes


class FullDisk(Disk):
    """Makes no directory whose path holds one of the words in `full_for`."""

    def __init__(self):
        self.full_for = set()

    def make_directory(self, path):
        if any(word in path for word in self.full_for):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().make_directory(path)


def refusal(call, *arguments, **more):
    with pytest.raises(PeerError) as caught:
        call(*arguments, **more)
    return caught.value.code, caught.value.message


def names(node):
    return {topic.name for topic in node.topics.all()}


def data_of(node):
    return node.store.directories[0].path


def test_a_created_topic_is_found_by_name_and_id_and_has_logs_on_disk(node):
    made = node.controller.create("orders", 3, {"retention.ms": "5000"})
    assert node.topics.get("orders") is made is node.topics.by_id(made.id)
    assert [partition.index for partition in made.partitions] == [0, 1, 2]
    assert all(partition.led.config.retention_ms == 5000 for partition in made.partitions)
    assert sorted(os.listdir(data_of(node)))[-3:] == ["orders-0", "orders-1", "orders-2"]
    assert node.topics.partition("orders", 2) is made.partitions[2]
    assert node.topics.partition("orders", 3) is None
    assert node.topics.partition("orders", -1) is None


def test_topics_are_the_same_after_a_restart(make_node):
    node = make_node()
    made = node.controller.create("orders", 2, {"retention.ms": "5000"})
    node.controller.grow("orders", 4)
    node.controller.alter("orders", {"segment.ms": "7000"})
    node.close()
    again = make_node().topics.get("orders")
    assert (again.id, len(again.partitions), again.overrides) == (made.id, 4, {"segment.ms": "7000"})
    assert again.config.segment_ms == 7000
    assert again.partitions[0].led.config.retention_ms == 604_800_000


def test_every_change_moves_the_revision(node):
    seen = [node.topics.revision]
    node.controller.create("orders", 1, {})
    seen.append(node.topics.revision)
    node.controller.grow("orders", 2)
    seen.append(node.topics.revision)
    node.controller.alter("orders", {})
    seen.append(node.topics.revision)
    node.controller.delete("orders")
    seen.append(node.topics.revision)
    assert sorted(set(seen)) == seen


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        (
            "a b",
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics,"
            " '.', '_' and '-'",
        ),
        (
            "a" * 250,
            f"Topic name is invalid: the length of '{'a' * 250}' is longer than the max allowed length 249",
        ),
    ],
)
def test_names_that_kafka_refuses_are_refused_in_its_words(node, name, message):
    assert refusal(node.controller.create, name, 1, {}) == (codes.INVALID_TOPIC_EXCEPTION, message)
    assert refusal(node.controller.ensure, name)[0] == codes.INVALID_TOPIC_EXCEPTION


def test_the_longest_name_is_taken(node):
    node.controller.create("a" * 249, 1, {})


def test_a_topic_is_not_made_twice(node):
    node.controller.create("orders", 1, {})
    message = "Topic 'orders' already exists."
    assert refusal(node.controller.create, "orders", 1, {}) == (codes.TOPIC_ALREADY_EXISTS, message)


def test_names_that_differ_in_dot_and_underscore_alone_collide_until_one_is_deleted(node):
    node.controller.create("a.b", 1, {})
    message = "Topic 'a_b' collides with existing topic: a.b"
    assert refusal(node.controller.create, "a_b", 1, {}) == (codes.INVALID_TOPIC_EXCEPTION, message)
    node.controller.delete("a.b")
    node.controller.create("a_b", 1, {})


def test_a_topic_has_at_least_one_partition(node):
    assert refusal(node.controller.create, "orders", 0, {})[0] == codes.INVALID_PARTITIONS


def test_a_topic_that_is_only_planned_is_not_made(node):
    node.controller.plan("orders", 1, {})
    assert names(node) == set()
    assert not any(name.startswith("orders") for name in os.listdir(data_of(node)))


def test_first_use_makes_a_topic_with_the_brokers_number_of_partitions(make_node):
    node = make_node(num_partitions=4)
    assert len(node.controller.ensure("orders").partitions) == 4
    assert node.controller.ensure("orders") is node.topics.get("orders")


def test_first_use_makes_nothing_where_it_is_switched_off_forbidden_or_internal(make_node):
    off = make_node(auto_create_topics_enable=False)
    assert refusal(off.controller.ensure, "orders")[0] == codes.UNKNOWN_TOPIC_OR_PARTITION
    off.close()
    node = make_node()
    assert refusal(node.controller.ensure, "orders", allowed=False)[0] == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(node.controller.ensure, "__consumer_offsets")[0] == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert names(node) == set()


def test_kafkas_own_topics_are_internal(node):
    assert node.controller.create("__consumer_offsets", 1, {}).internal
    assert not node.controller.create("orders", 1, {}).internal


def test_a_deleted_topic_is_gone_from_memory_disk_and_catalog(make_node):
    node = make_node()
    told = []
    node.controller.on_deleted = lambda topics: told.extend(topics) or ()
    made = node.controller.create("orders", 2, {})
    node.controller.delete("orders")
    assert (node.topics.get("orders"), node.topics.by_id(made.id), [each.id for each in told]) == (
        None,
        None,
        [made.id],
    )
    assert not any(name in ("orders-0", "orders-1") for name in os.listdir(data_of(node)))
    node.close()
    assert names(make_node()) == set()


def test_a_topic_made_again_has_another_id(node):
    first = node.controller.create("orders", 1, {}).id
    node.controller.delete("orders")
    assert node.controller.create("orders", 1, {}).id != first


def test_what_does_not_exist_cannot_be_changed(node):
    expected = (codes.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nope' does not exist.")
    assert refusal(node.controller.delete, "nope") == expected
    assert refusal(node.controller.grow, "nope", 3) == expected
    assert refusal(node.controller.alter, "nope", {}) == expected


def test_altered_settings_reach_the_open_logs_and_bad_ones_change_nothing(node):
    topic = node.controller.create("orders", 1, {"retention.ms": "5"})
    node.controller.alter("orders", {"retention.bytes": "9"})
    config = topic.partitions[0].led.config
    assert (config.retention_bytes, config.retention_ms) == (9, 604_800_000)
    assert refusal(node.controller.alter, "orders", {"retention.bytes": "x"})[0] == codes.INVALID_CONFIG
    node.controller.alter("orders", {"retention.bytes": "11"}, validate_only=True)
    assert topic.overrides == {"retention.bytes": "9"}


def test_settings_that_no_topic_has_any_more_take_no_memory(node):
    for name in ("a", "b"):
        node.controller.create(name, 1, {"retention.ms": "1"})
    assert node.topics.get("a").config is node.topics.get("b").config, "topics that set the same share it"
    for number in range(20):
        node.controller.alter("a", {"retention.ms": str(1_000 + number)})
    node.controller.delete("b")
    gc.collect()
    kept = [dict(key) for key in node.topics._configs]
    assert kept == [{"retention.ms": "1019"}]


def test_an_internal_topic_stays_compacted_whatever_else_is_set(make_node):
    """Else the state of groups and transactions would expire with its segments."""
    node = make_node()
    node.coordination.make_topic("__consumer_offsets")
    topic = node.topics.get("__consumer_offsets")
    for policy in ("delete", "compact,delete"):
        code, message = refusal(node.controller.alter, topic.name, {"cleanup.policy": policy})
        assert (code, f"must be compact, not {policy}" in message) == (codes.INVALID_CONFIG, True)
    node.controller.alter(topic.name, {"flush.messages": "1"})  # all that it sets is replaced by this
    assert topic.overrides == {"flush.messages": "1", "cleanup.policy": "compact"}


def test_the_brokers_new_default_reaches_the_topics_that_do_not_decide_for_themselves(node):
    free, bound = node.controller.create("free", 1, {}), node.controller.create("bound", 1, {"retention.ms": "5"})
    node.dynamic_settings.replace("cluster", {"log.retention.ms": "99"})
    assert free.partitions[0].led.config.retention_ms == 99
    assert bound.partitions[0].led.config.retention_ms == 5


def test_a_topic_whose_logs_cannot_be_made_is_taken_back(make_node):
    disk = FullDisk()
    node = make_node(disk=disk)
    disk.full_for = {"bad-2"}
    planned = [node.controller.plan("bad", 4, {}), node.controller.plan("good", 1, {})]
    bad, good = node.controller.make(planned)
    assert (bad.code, good.name) == (codes.KAFKA_STORAGE_ERROR, "good")
    assert names(node) == {"good"}
    node.controller.create("fine", 1, {})
    disk.full_for = {"fine-1"}
    assert refusal(node.controller.grow, "fine", 3)[0] == codes.KAFKA_STORAGE_ERROR
    assert len(node.topics.get("fine").partitions) == 1
    node.close()
    again = make_node()
    assert names(again) == {"good", "fine"}
    assert len(again.topics.get("fine").partitions) == 1


def test_a_crash_between_catalog_and_logs_is_made_good_at_the_next_start(make_node):
    node = make_node()
    node.controller.create("orders", 2, {})
    path = node.store.find("orders", 1).path
    node.close()
    shutil.rmtree(path)
    assert all(partition.led is not None for partition in make_node().topics.get("orders").partitions)


def test_partitions_of_a_directory_that_is_away_are_offline_and_not_made_anew(make_node, tmp_path):
    directories = (str(tmp_path / "a"), str(tmp_path / "b"))
    node = make_node(log_dirs=directories)
    node.controller.create("orders", 4, {})
    node.close()
    os.rename(directories[1], directories[1] + ".away")
    with open(directories[1], "w"):  # a file where the directory should be
        pass
    node = make_node(log_dirs=directories)
    assert sum(partition.led is not None for partition in node.topics.get("orders").partitions) == 2
    node.close()
    os.unlink(directories[1])
    os.rename(directories[1] + ".away", directories[1])
    again = make_node(log_dirs=directories)
    assert all(partition.led is not None for partition in again.topics.get("orders").partitions)


def test_logs_of_a_topic_deleted_while_their_directory_was_away_are_set_aside(make_node, tmp_path):
    directories = (str(tmp_path / "a"), str(tmp_path / "b"))
    node = make_node(log_dirs=directories)
    node.controller.create("old", 2, {})
    node.controller.create("again", 2, {})
    node.close()
    node = make_node(log_dirs=directories[:1])
    for name in ("old", "again"):
        node.controller.delete(name)
    node.controller.create("again", 1, {})
    node.close()
    node = make_node(log_dirs=directories)
    assert names(node) == {"again"}
    strays = [name for name in os.listdir(directories[1]) if name.endswith("-stray")]
    assert sorted(name.partition(".")[0][:-2] for name in strays) == ["again", "old"]
    node.close()
    assert names(make_node(log_dirs=directories)) == {"again"}


def test_logs_without_any_catalog_are_adopted_with_their_ids(make_node):
    node = make_node()
    made = node.controller.create("orders", 3, {})
    node.close()
    os.unlink(os.path.join(data_of(node), JOURNAL_NAME))
    again = make_node().topics.get("orders")
    assert (again.id, len(again.partitions)) == (made.id, 3)


def test_ids_are_random_and_never_look_like_an_option_in_kafkas_text_form(node):
    ids = {node.controller.plan(f"t{number}", 1, {}).id for number in range(200)}
    assert len(ids) == 200
    assert all(isinstance(each, uuid.UUID) and each.bytes[0] >> 2 != 62 for each in ids)
