import errno
import json
import os
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.catalog import CLUSTER_WIDE, JOURNAL_NAME, THIS_BROKER, Catalog, TopicEntry
from headrace.broker.producer_ids import BLOCK_SIZE, ProducerIds
from headrace.core.errors import OperatorError, StorageError
from headrace.core.files import Disk


class FailingDisk(Disk):
    """Fails to write below the directories in `broken`."""

    def __init__(self):
        self.broken = set()
        self.paths = {}

    def open(self, path, *flags):
        self._check(path)
        fd = super().open(path, *flags)
        self.paths[fd] = path
        return fd

    def write(self, fd, pieces, at):
        self._check(self.paths[fd])
        super().write(fd, pieces, at)

    def _check(self, path):
        if any(path.startswith(broken) for broken in self.broken):
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def directories(tmp_path):
    made = [str(tmp_path / name) for name in ("a", "b")]
    for directory in made:
        os.mkdir(directory)
    return made


def topic(name, partition_count=1, **overrides):
    return TopicEntry(name=name, id=uuid.uuid4(), partition_count=partition_count, overrides=overrides)


def journal(directory):
    return os.path.join(directory, JOURNAL_NAME)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def test_a_new_catalog_gets_a_cluster_id_that_stays(directories):
    first = Catalog.open(directories, Disk())
    assert len(first.cluster_id) == 22
    assert Catalog.open(directories, Disk()).cluster_id == first.cluster_id


def test_a_known_cluster_id_is_taken_into_a_new_catalog(directories):
    assert Catalog.open(directories, Disk(), "abc").cluster_id == "abc"
    assert Catalog.open(directories, Disk(), "other").cluster_id == "abc"


def test_all_that_is_recorded_is_there_again_after_a_restart(directories):
    catalog = Catalog.open(directories, Disk())
    one, two = topic("one", 3, **{"retention.ms": "5"}), topic("two")
    catalog.put_topics([one, two, topic("gone")])
    catalog.delete_topics(["gone"])
    grown = TopicEntry(name="two", id=two.id, partition_count=9, overrides={})
    catalog.put_topics([grown])
    catalog.put_broker_settings(CLUSTER_WIDE, {"log.retention.ms": "1"})
    catalog.put_broker_settings(THIS_BROKER, {"message.max.bytes": "2"})
    again = Catalog.open(directories, Disk())
    assert again.topics == {"one": one, "two": grown} == catalog.topics
    assert again.broker_settings == {
        CLUSTER_WIDE: {"log.retention.ms": "1"},
        THIS_BROKER: {"message.max.bytes": "2"},
    }


def test_every_directory_has_the_same_copy(directories):
    Catalog.open(directories, Disk()).put_topics([topic("one")])
    assert read(journal(directories[0])) == read(journal(directories[1]))


def test_a_directory_that_missed_changes_is_brought_up_to_date_and_named(directories):
    Catalog.open(directories, Disk()).put_topics([topic("old")])
    alone = Catalog.open(directories[:1], Disk())
    alone.delete_topics(["old"])
    # Compaction makes the newer copy the shorter one: the number of the last change decides, not the length.
    for number in range(5):
        alone.put_topics([topic("new", number + 1)])
    Catalog.open(directories[:1], Disk())
    assert len(read(journal(directories[0]))) < len(read(journal(directories[1]))) * 2
    both = Catalog.open(directories, Disk())
    assert set(both.topics) == {"new"}
    assert both.directories_behind == {directories[1]}
    assert set(Catalog.open(directories[1:], Disk()).topics) == {"new"}


def test_a_torn_last_line_is_cut_and_the_next_change_follows_the_last_whole_one(directories):
    catalog = Catalog.open(directories[:1], Disk())
    catalog.put_topics([topic("one")])
    path = journal(directories[0])
    write(path, read(path) + b'{"seq":3,"op":"topic","na')
    again = Catalog.open(directories[:1], Disk())
    assert set(again.topics) == {"one"}
    again.put_topics([topic("two")])
    assert set(Catalog.open(directories[:1], Disk()).topics) == {"one", "two"}


def test_a_damaged_line_with_others_behind_it_stops_the_start_with_file_and_line(directories):
    catalog = Catalog.open(directories[:1], Disk())
    catalog.put_topics([topic("one")])
    catalog.put_topics([topic("two")])
    path = journal(directories[0])
    lines = read(path).split(b"\n")
    write(path, b"\n".join([lines[0], b"\x00" * len(lines[1]), *lines[2:]]))
    with pytest.raises(OperatorError, match=f"{JOURNAL_NAME}:2: this line is damaged"):
        Catalog.open(directories[:1], Disk())


def test_a_damaged_copy_is_replaced_by_a_whole_one(directories):
    catalog = Catalog.open(directories, Disk())
    catalog.put_topics([topic("one")])
    catalog.put_topics([topic("two")])
    write(journal(directories[0]), b"garbage\n" + read(journal(directories[0])))
    assert set(Catalog.open(directories, Disk()).topics) == {"one", "two"}
    assert set(Catalog.open(directories[:1], Disk()).topics) == {"one", "two"}


def test_an_operation_of_a_newer_version_is_not_skipped(directories):
    Catalog.open(directories[:1], Disk())
    path = journal(directories[0])
    write(path, read(path) + b'{"seq":2,"op":"acl"}\n')
    with pytest.raises(OperatorError, match="operation 'acl' is not known"):
        Catalog.open(directories[:1], Disk())


def test_dead_lines_are_dropped_at_start_when_they_outnumber_the_live_ones(directories):
    catalog = Catalog.open(directories, Disk())
    one = topic("one")
    for count in range(1, 10):
        catalog.put_topics([TopicEntry(name="one", id=one.id, partition_count=count, overrides={})])
    again = Catalog.open(directories, Disk())
    assert again.topics["one"].partition_count == 9
    assert [len(read(journal(d)).splitlines()) for d in directories] == [3, 3]  # one notes the end
    again.put_topics([topic("two")])
    assert set(Catalog.open(directories, Disk()).topics) == {"one", "two"}


def test_the_journal_of_a_broker_that_never_stops_does_not_grow_without_end(directories):
    class NoSync(Disk):
        def sync(self, fd):
            pass

    catalog = Catalog.open(directories[:1], NoSync())
    for _ in range(1300):
        churn = topic("churn")
        catalog.put_topics([churn])
        catalog.delete_topics(["churn"])
        catalog.deletion_finished(churn.id)
    assert len(read(journal(directories[0])).splitlines()) < 1100


def test_one_failing_directory_does_not_stop_a_change_and_is_made_whole_when_it_works_again(directories):
    disk = FailingDisk()
    catalog = Catalog.open(directories, disk)
    disk.broken = {directories[0]}
    catalog.put_topics([topic("one")])
    disk.broken = set()
    catalog.put_topics([topic("two")])
    assert set(Catalog.open(directories[:1], Disk()).topics) == {"one", "two"}


def test_a_change_that_no_directory_takes_is_refused_and_not_seen(directories):
    disk = FailingDisk()
    catalog = Catalog.open(directories, disk)
    catalog.put_topics([topic("one")])
    disk.broken = set(directories)
    with pytest.raises(StorageError, match="no log directory takes the change"):
        catalog.put_topics([topic("two")])
    assert set(catalog.topics) == {"one"}
    disk.broken = set()
    catalog.put_topics([topic("three")])
    assert set(Catalog.open(directories, Disk()).topics) == {"one", "three"}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_journal_cut_anywhere_gives_the_state_after_some_change(tmp_path_factory, data):
    directory = str(tmp_path_factory.mktemp("cut"))
    catalog = Catalog.open([directory], Disk())
    states = [dict(catalog.topics)]
    for number in range(5):
        catalog.put_topics([topic(f"t{number % 3}", number + 1)])
        states.append(dict(catalog.topics))
    whole = read(journal(directory))
    first = whole.index(b"\n") + 1
    cut = data.draw(st.integers(first, len(whole)))
    write(journal(directory), whole[:cut])
    assert Catalog.open([directory], Disk()).topics in states


def test_lines_are_json_with_a_number_each(directories):
    Catalog.open(directories[:1], Disk(), "id").put_topics([topic("one")])
    lines = [json.loads(line) for line in read(journal(directories[0])).splitlines()]
    assert [(line["seq"], line["op"]) for line in lines[1:]] == [(1, "cluster"), (2, "topic")]


def test_producer_ids_are_never_given_twice_over_restarts(directories):
    given_out = []
    for _ in range(3):
        ids = ProducerIds(Catalog.open(directories, Disk()).take_producer_ids)
        given_out += [ids.next() for _ in range(3)]
    assert given_out == [0, 1, 2, BLOCK_SIZE, BLOCK_SIZE + 1, BLOCK_SIZE + 2, *range(2000, 2003)]


def test_producer_ids_go_on_in_the_next_block():
    blocks = iter([range(2), range(7, 9)])
    ids = ProducerIds(lambda count: next(blocks))
    assert [ids.next() for _ in range(4)] == [0, 1, 7, 8]


def test_a_deleted_topic_is_remembered_by_its_id_until_nothing_is_left_of_it(directories):
    catalog = Catalog.open(directories, Disk())
    old, new = topic("orders"), topic("orders")
    catalog.put_topics([old])
    catalog.delete_topics(["orders"])
    catalog.put_topics([new])
    again = Catalog.open(directories, Disk())
    assert (again.deleted, again.topics) == ({old.id: "orders"}, {"orders": new})
    again._journal.compact()
    again = Catalog.open(directories, Disk())
    assert (again.deleted, again.topics) == ({old.id: "orders"}, {"orders": new}), "the deletion comes before the topic"
    again.deletion_finished(old.id)
    again._journal.compact()
    assert Catalog.open(directories, Disk()).deleted == {}
