"""What damage to an internal topic costs at the next start: the record or partition that it hit, and nothing else."""

import logging
import os

import pytest

from headrace.coordinator.group_records import CommittedOffset, encode_offset_commit
from headrace.coordinator.placing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from headrace.coordinator.transactions.records import encode_key
from headrace.core.steps import finish
from headrace.protocol import error_codes as codes

FIND_COORDINATOR = 10
HIT, OTHER = "shop", "audit"  # two groups, two transactional ids: each in a partition of its own
COUNT = 50
GROUP, TRANSACTION = 0, 1


def end_turn(node):
    node._end_of_turn()
    node.reactor.run_pending()


def commit(node, group, offset):
    told = []
    entries = [("orders", 0, CommittedOffset(offset, commit_timestamp_ms=node.clock.now_ms()))]
    node.groups.commit_offsets(group, "", -1, None, entries, told.append, version=9)
    end_turn(node)
    return told[0][0]


def committed(node, group):
    """The offset, or the error."""
    told = []
    told.append(finish(node.groups.fetch_offsets(group, None, -1, [("orders", [0])], False)))
    if told[0]["error_code"]:
        return codes_named(told[0]["error_code"])
    return told[0]["topics"][0]["partitions"][0]["committed_offset"]


def init(node, transactional_id):
    told = []
    node.transactions.init_producer_id(transactional_id, 60_000, None, told.append)
    end_turn(node)
    return told[0]["error_code"]


def codes_named(code):
    return next(name for name, value in vars(codes).items() if value == code and name.isupper())


def coordinator(node, client, kind, key):
    asked = client.ask(node, FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[key, "somebody"]).coordinators
    assert asked[1].error_code == codes.NONE
    return asked[0]


def damage_metrics(node):
    found = node.coordination.damage()
    return {key: {labels[0]: n for labels, n in values.items() if n} for key, values in found.items()}


def write(node, topic, partition, *records):
    """As a client could before it was refused."""
    journal = node.coordination._offsets if topic == OFFSETS_TOPIC else node.coordination._journal
    told = []
    journal.append(partition, records, told.append)
    end_turn(node)
    assert told == [None]


@pytest.fixture
def used(make_node):
    """A node with two groups and two transactional ids."""
    node = make_node()
    node.controller.create("orders", 1, {})
    assert commit(node, HIT, 5) == commit(node, OTHER, 6) == codes.NONE
    assert init(node, HIT) == init(node, OTHER) == codes.NONE
    return node


@pytest.fixture
def warnings(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("headrace"), "propagate", True)
    return lambda: [getattr(each, "fields", {}) for each in caplog.records if each.levelno >= logging.WARNING]


BAD_GROUP_RECORDS = {
    "no type": (b"x", b"y"),
    "no group": (b"\x00\x00", b"y"),
    "a value that is cut": (encode_offset_commit(HIT, "orders", 0, CommittedOffset(9))[0], b"\x00\x03\x00"),
    "a version from the future": (encode_offset_commit(HIT, "orders", 0, CommittedOffset(9))[0], b"\x7f\xff"),
    "a group of an unknown version": (b"\x00\x02\x00\x04shop", b"\x00\x63"),
    "a consumer group's member that is cut": (b"\x00\x05\x00\x04shop\x00\x01m", b"\x00\x00\x01"),
}


@pytest.mark.parametrize("record", BAD_GROUP_RECORDS.values(), ids=BAD_GROUP_RECORDS)
def test_a_record_of_a_group_that_cannot_be_read_is_skipped_and_named(make_node, used, warnings, record):
    place = partition_for(HIT, COUNT)
    write(used, OFFSETS_TOPIC, place, record)
    bad_offset = used.topics.partition(OFFSETS_TOPIC, place).led.end_offset - 1
    assert commit(used, HIT, 7) == codes.NONE
    used.close()
    node = make_node()
    assert (committed(node, HIT), committed(node, OTHER)) == (7, 6)
    assert damage_metrics(node)["internal_records_skipped"] == {OFFSETS_TOPIC: 1}
    (told,) = [each for each in warnings() if each.get("topic") == OFFSETS_TOPIC]
    assert (told["partition"], told["offset"]) == (place, bad_offset)


@pytest.mark.parametrize(
    "record",
    [(b"x", b"y"), (encode_key(HIT), b"\x00\x01\x00"), (encode_key(HIT)[:3], b"")],
    ids=["no version", "a value that is cut", "a key that is cut"],
)
def test_a_transaction_record_that_cannot_be_read_is_skipped_and_named(make_node, used, warnings, record):
    place = partition_for(HIT, COUNT)
    write(used, TRANSACTIONS_TOPIC, place, record)
    used.close()
    node = make_node()
    assert init(node, HIT) == init(node, OTHER) == codes.NONE
    assert damage_metrics(node)["internal_records_skipped"] == {TRANSACTIONS_TOPIC: 1}
    (told,) = [each for each in warnings() if each.get("topic") == TRANSACTIONS_TOPIC]
    assert told["partition"] == place


def flip(node, topic, at, size=4):
    """Flips bytes of the log of the partition in which HIT is; counted from the end where negative."""
    log = node.topics.partition(topic, partition_for(HIT, COUNT)).led
    path = os.path.join(log.path, "00000000000000000000.log")
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        start = at if at >= 0 else len(data) + at
        data[start : start + size] = bytes(byte ^ 0xFF for byte in data[start : start + size])
        file.seek(0)
        file.write(data)
    return path


BASE_OFFSET, LENGTH, MAGIC, CRC, RECORDS = 0, 8, 16, 17, 61  # where a batch has them


@pytest.mark.parametrize("at", [LENGTH, MAGIC, CRC, RECORDS, -4], ids=["length", "magic", "crc", "records", "end"])
def test_a_damaged_partition_leaves_only_its_own_groups_without_a_coordinator(make_node, client, used, warnings, at):
    used.close()
    path = flip(used, OFFSETS_TOPIC, at)
    node = make_node()
    assert (committed(node, HIT), committed(node, OTHER)) == ("NOT_COORDINATOR", 6)
    assert (commit(node, HIT, 8), commit(node, OTHER, 8)) == (codes.NOT_COORDINATOR, codes.NONE)
    assert init(node, HIT) == codes.NONE
    absent = coordinator(node, client, GROUP, HIT)
    assert absent.error_code == codes.COORDINATOR_NOT_AVAILABLE
    assert path in absent.error_message
    assert coordinator(node, client, GROUP, OTHER).error_code == codes.NONE
    assert coordinator(node, client, TRANSACTION, HIT).error_code == codes.NONE
    assert damage_metrics(node)["coordinator_partitions_lost"] == {OFFSETS_TOPIC: 1}
    (told,) = [each for each in warnings() if each.get("topic") == OFFSETS_TOPIC]
    assert told["partition"] == partition_for(HIT, COUNT)
    assert path in str(told["error"])


@pytest.mark.parametrize("at", [LENGTH, MAGIC, CRC, RECORDS, -4], ids=["length", "magic", "crc", "records", "end"])
def test_a_damaged_partition_leaves_only_its_own_transactional_ids_without_a_coordinator(make_node, client, used, at):
    used.close()
    path = flip(used, TRANSACTIONS_TOPIC, at)
    node = make_node()
    assert (init(node, HIT), init(node, OTHER)) == (codes.NOT_COORDINATOR, codes.NONE)
    assert (committed(node, HIT), committed(node, OTHER)) == (5, 6)
    assert node.transactions.describe([HIT])[0]["error_code"] == codes.NOT_COORDINATOR
    absent = coordinator(node, client, TRANSACTION, HIT)
    assert absent.error_code == codes.COORDINATOR_NOT_AVAILABLE
    assert path in absent.error_message


@pytest.mark.parametrize("pending", [False, True], ids=["plain", "in a transaction"])
@pytest.mark.parametrize("at", [LENGTH, MAGIC, CRC, RECORDS, -4], ids=["length", "magic", "crc", "records", "end"])
def test_damage_below_the_recovery_point_of_a_killed_broker_costs_other_groups_nothing(make_node, used, at, pending):
    if pending:
        entries = [("orders", 0, CommittedOffset(9))]
        used.groups.commit_offsets(HIT, "", -1, None, entries, lambda codes: None, version=5, producer=(7, 0))
        end_turn(used)
    log = used.topics.partition(OFFSETS_TOPIC, partition_for(HIT, COUNT)).led
    log.checkpoint()
    log.flush_state.all_on_disk(log.end_offset)
    used.store.save_checkpoints()
    assert log.recovery_point == log.end_offset
    used.abandon()
    flip(used, OFFSETS_TOPIC, at)
    node = make_node()
    assert committed(node, HIT) in ("NOT_COORDINATOR", -1)  # -1: the log was cut there
    assert committed(node, OTHER) == 6
    assert commit(node, OTHER, 8) == codes.NONE


def test_a_partition_that_was_deleted_to_repair_it_serves_its_groups_again(make_node, used):
    used.close()
    path = flip(used, OFFSETS_TOPIC, CRC)
    directory = os.path.dirname(path)
    for name in os.listdir(directory):
        os.unlink(os.path.join(directory, name))
    os.rmdir(directory)
    node = make_node()
    assert (committed(node, HIT), committed(node, OTHER)) == (-1, 6)
    assert commit(node, HIT, 8) == codes.NONE


def test_a_damaged_partition_is_not_written_to(make_node, used):
    used.close()
    path = flip(used, OFFSETS_TOPIC, CRC)
    size = os.path.getsize(path)
    node = make_node()
    commit(node, HIT, 8)
    node.controller.delete("orders")  # which forgets the offsets of every group
    end_turn(node)
    node.close()
    assert os.path.getsize(path) == size
