"""A journal of topics that was cut, flipped or lost: no topic is set aside for it, and no committed offset vanishes."""

import logging
import os
import re
import shutil

import pytest

from headrace.broker import strays
from headrace.broker.catalog import CLUSTER_WIDE, JOURNAL_NAME, PRODUCER_IDS_SKIPPED, Catalog
from headrace.broker.healing import KEPT_FOREVER
from headrace.broker.journal_format import NOTE_BYTES
from headrace.coordinator.group_records import CommittedOffset
from headrace.coordinator.placing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.core.errors import OperatorError
from headrace.core.files import Disk
from headrace.core.steps import finish

GROUP = "shop"
FEW_PARTITIONS = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}


class QuickDisk(Disk):
    """Nothing here depends on a loss of power."""

    def sync(self, fd):
        pass

    def sync_directory(self, path):
        pass


@pytest.fixture
def warnings(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("headrace"), "propagate", True)
    return lambda: [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.fixture
def start(make_node):
    return lambda **settings: make_node(disk=QuickDisk(), **FEW_PARTITIONS, **settings)


@pytest.fixture
def used(start):
    """A node with settings, a topic that was made again, one that grew, one that is gone, offsets and transactions."""
    start().close()  # the directory is not new any more: a log that is not there was deleted
    return use(start())


def use(node):
    node.controller.create("first", 1, {"retention.ms": "5000"})
    node.controller.create("again", 3, {})
    node.controller.delete("again")
    node.dynamic_settings.replace(CLUSTER_WIDE, {"log.retention.ms": "99"})
    node.controller.create("again", 2, {})
    node.controller.create("gone", 1, {})
    commit(node, 7)
    node.transactions.init_producer_id(GROUP, 60_000, None, lambda answer: None)
    end_turn(node)
    node.controller.grow("first", 2)
    node.controller.delete("gone")
    node.controller.create("last", 1, {"cleanup.policy": "compact"})
    return node


def end_turn(node):
    node._end_of_turn()
    node.reactor.run_pending()


def commit(node, offset):
    told = []
    entries = [("first", 0, CommittedOffset(offset, commit_timestamp_ms=node.clock.now_ms()))]
    node.groups.commit_offsets(GROUP, "", -1, None, entries, told.append, version=9)
    end_turn(node)
    assert [error for _, _, error in told[0][1]] == [0] if isinstance(told[0], tuple) else told


def committed(node):
    told = []
    told.append(finish(node.groups.fetch_offsets(GROUP, None, -1, [("first", [0])], False)))
    return told[0]["topics"][0]["partitions"][0]["committed_offset"]


def shape(topics):
    """What the directories can tell, too."""
    return {name: (topic.id, topic.partition_count) for name, topic in topics.items()}


def journal(directory):
    return os.path.join(directory, JOURNAL_NAME)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def stray_names(directory):
    return [name for name in os.listdir(directory) if name.endswith("-stray")]


def cuts(whole):
    """At the ends of lines and right beside them, in the middle of each, and in the note at the front."""
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    middles = [(first + second) // 2 for first, second in zip([0, *ends], ends, strict=False)]
    return sorted({0, 1, *middles, *(end + by for end in ends for by in (-1, 0, 1) if end + by < len(whole))})


def opened_or_refusal(directory, node):
    try:
        return opened([directory], node)
    except OperatorError as error:
        return str(error)


def opened(directories, node):
    """As a start does it, with the logs that this node has."""
    catalog = Catalog.open(directories, QuickDisk(), node.cluster_id)
    strays.sort_out(catalog, node.store, node.settings)
    return catalog


# ── one copy ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_journal_cut_at_any_byte_is_completed_from_the_directories(used):
    (directory,) = [each.path for each in used.store.directories]
    whole, expected = read(journal(directory)), shape(used.catalog.topics)
    for end in sorted({*cuts(whole), *range(0, len(whole), 7)}):
        write(journal(directory), whole[:end])
        catalog = opened([directory], used)
        assert shape(catalog.topics) == expected, f"cut at byte {end}"
        assert catalog.cluster_id == used.cluster_id
        again = Catalog.open([directory], QuickDisk())
        assert (again.doubt, again.topics) == ("", catalog.topics), f"cut at byte {end}, and written again"
    assert stray_names(directory) == []


def test_a_flipped_byte_is_refused_with_file_and_line_or_healed(used):
    (directory,) = [each.path for each in used.store.directories]
    whole, expected = read(journal(directory)), shape(used.catalog.topics)
    outcomes = set()
    for at in range(len(whole)):
        write(journal(directory), whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        found = opened_or_refusal(directory, used)
        if isinstance(found, Catalog):
            assert shape(found.topics) == expected, f"byte {at}"
        else:
            assert re.search(f"{re.escape(journal(directory))}:[0-9]+: this line is damaged", found)
        outcomes.add(type(found))
    assert outcomes == {Catalog, str}
    assert stray_names(directory) == []


@pytest.mark.parametrize("clean", [True, False], ids=["after-a-stop", "after-a-kill"])
def test_committed_offsets_and_transactions_survive_a_cut_journal(start, used, tmp_path, clean):
    node, directory = used, str(tmp_path / "data")
    expected = shape(node.catalog.topics)
    whole = read(journal(directory))
    if clean:
        node.close()
    else:
        node.abandon()
    kept = str(tmp_path / "kept")
    shutil.copytree(directory, kept)
    for end in cuts(whole)[::4]:
        shutil.rmtree(directory)
        shutil.copytree(kept, directory)
        write(journal(directory), whole[:end])
        node = start()
        assert shape(node.catalog.topics) == expected
        assert committed(node) == 7
        told = []
        node.transactions.init_producer_id(GROUP, 60_000, None, told.append)
        end_turn(node)
        assert (told[0]["error_code"], told[0]["producer_epoch"]) == (0, 1), "its epoch before was 0"
        for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            assert node.topics.get(name).overrides["cleanup.policy"] == "compact"
        assert stray_names(directory) == []
        node.close()
        node = start()
        assert (committed(node), shape(node.catalog.topics)) == (7, expected)
        node.close()


def test_the_warning_names_the_file_what_was_lost_and_what_was_done(start, used, tmp_path, warnings):
    used.close()
    path = journal(str(tmp_path / "data"))
    whole = read(path)
    cut = whole.index(b'"name":"last"')
    write(path, whole[:cut])
    start()
    (told,) = [each for each in warnings() if path in each]
    assert f"{path} ends at byte {cut}, though {len(whole)} bytes were written" in told
    assert re.search(r"change \d+ is lost", told)
    assert "1 topics adopted (last)" in told
    assert any("topic last" in each and "nothing of it expires" in each for each in warnings())


def test_an_adopted_topic_whose_settings_are_lost_keeps_its_records(start, used, tmp_path):
    used.close()
    path = journal(str(tmp_path / "data"))
    write(path, read(path)[:-1].rpartition(b"\n")[0] + b"\n")
    topics = start().topics
    assert topics.get("last").overrides == KEPT_FOREVER
    assert topics.get("first").overrides == {"retention.ms": "5000"}, "what stands before the cut is known"


def test_producer_ids_that_may_have_been_given_out_are_skipped(start, used, tmp_path):
    used.close()
    path = journal(str(tmp_path / "data"))
    write(path, read(path)[: NOTE_BYTES + 5])
    assert start().producer_ids.next() >= PRODUCER_IDS_SKIPPED


def test_a_torn_append_behind_the_noted_end_is_cut_without_a_word(start, used, tmp_path, warnings):
    used.close()
    path = journal(str(tmp_path / "data"))
    write(path, read(path) + b'{"seq":15,"op":"topic","na')
    node = start()
    assert "last" in shape(node.catalog.topics)
    assert warnings() == []
    node.controller.create("next", 1, {})
    node.close()
    assert "next" in shape(start().catalog.topics)


def test_a_whole_append_whose_end_was_not_noted_yet_counts(used, tmp_path):
    used.close()
    directory = str(tmp_path / "data")
    before = read(journal(directory))
    catalog = Catalog.open([directory], QuickDisk())
    catalog.delete_topics(["first"])
    after = read(journal(directory))
    assert after[NOTE_BYTES:].startswith(before[NOTE_BYTES:])
    write(journal(directory), before[:NOTE_BYTES] + after[NOTE_BYTES:])
    again = Catalog.open([directory], QuickDisk())
    assert (again.doubt, "first" in again.topics) == ("", False)


def test_a_journal_of_an_older_version_is_read_and_gets_its_note(used, tmp_path):
    used.close()
    directory = str(tmp_path / "data")
    lines = read(journal(directory)).splitlines()[1:]
    old = b"".join(line.rpartition(b',"crc":')[0] + b"}\n" for line in lines)
    write(journal(directory), old)
    catalog = Catalog.open([directory], QuickDisk())
    assert (catalog.doubt, shape(catalog.topics)) == ("", shape(used.catalog.topics))
    assert read(journal(directory)).startswith(b'{"journal":1,')


def test_a_journal_of_an_older_version_that_ends_in_a_line_is_in_doubt(used, tmp_path):
    used.close()
    directory = str(tmp_path / "data")
    write(journal(directory), b'{"seq":1,"op":"cluster","id":"abc"}\n{"seq":2,"op":"top')
    catalog = Catalog.open([directory], QuickDisk())
    assert "in the middle of a line" in catalog.doubt


# ── two copies ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def directories(tmp_path):
    return str(tmp_path / "a"), str(tmp_path / "b")


@pytest.fixture
def two(start, directories):
    start(log_dirs=directories).close()
    return use(start(log_dirs=directories))


@pytest.mark.parametrize("hit", [0, 1])
def test_a_copy_damaged_in_any_way_is_written_again_from_the_other(two, directories, hit):
    path, whole = journal(directories[hit]), read(journal(directories[hit]))
    for end in range(hit, len(whole), 17):
        write(path, whole[:end])
        assert opened(directories, two).topics == two.catalog.topics, f"cut at byte {end}"
        assert opened(directories[hit : hit + 1], two).topics == two.catalog.topics
    for at in range(hit, len(whole), 17):
        write(path, whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert opened(directories, two).topics == two.catalog.topics, f"byte {at} flipped"
        assert opened(directories[hit : hit + 1], two).topics == two.catalog.topics
    os.unlink(path)
    assert opened(directories, two).topics == two.catalog.topics
    assert [stray_names(directory) for directory in directories] == [[], []]


def test_a_copy_that_was_healed_from_the_other_is_named_with_what_it_lacked(two, directories, warnings):
    path = journal(directories[0])
    write(path, read(path)[:200])
    opened(directories, two)
    (told,) = [each for each in warnings() if path in each]
    assert f"{path} ends at byte 200" in told
    assert f"written again from {journal(directories[1])}" in told


def test_two_cut_copies_are_completed_from_the_directories(two, directories):
    whole, expected = read(journal(directories[0])), shape(two.catalog.topics)
    for end in cuts(whole):
        write(journal(directories[0]), whole[:end])
        write(journal(directories[1]), whole[: end // 2])
        assert shape(opened(directories, two).topics) == expected, f"cut at byte {end}"
    assert [stray_names(directory) for directory in directories] == [[], []]


def test_the_newest_change_counts_when_the_only_copy_that_had_it_is_cut(start, two, directories):
    """The other directory was away when it was made: its copy is whole, and old."""
    two.close()
    alone = start(log_dirs=directories[:1])
    alone.controller.create("newer", 1, {})
    expected = shape(alone.catalog.topics)
    alone.close()
    path = journal(directories[0])
    write(path, read(path)[:-20])
    node = start(log_dirs=directories)
    assert shape(node.catalog.topics) == expected
    assert stray_names(directories[0]) == []


def test_a_directory_that_was_away_while_the_journal_was_healed_keeps_its_topics(start, directories):
    node = start(log_dirs=directories)
    for number in range(4):
        node.controller.create(f"t{number}", 1, {})
    expected = shape(node.catalog.topics)
    path = journal(directories[0])
    node.close()
    os.rename(directories[1], directories[1] + ".away")
    with open(directories[1], "w"):  # a file where the directory should be
        pass
    write(path, read(path)[: NOTE_BYTES + 60])
    healed = start(log_dirs=directories)
    assert len(healed.catalog.topics) == 2
    healed.close()
    os.unlink(directories[1])
    os.rename(directories[1] + ".away", directories[1])
    assert shape(start(log_dirs=directories).catalog.topics) == expected
    assert [stray_names(directory) for directory in directories] == [[], []]


def test_an_empty_partition_metadata_stops_no_start(used, start, warnings):
    directory = used.store.directories[0].path
    expected = shape(used.catalog.topics)
    used.close()
    write(os.path.join(directory, "first-1", "partition.metadata"), b"")
    os.unlink(journal(directory))
    again = start()
    assert shape(again.catalog.topics) == expected
    assert any("first-1" in line and "is ignored" in line for line in warnings())
