"""Files that are not what they should be: the start says which file, what is wrong and what to do, or does without."""

import logging
import os
import re

import pytest

from headrace.core.errors import OperatorError
from headrace.log.checkpoints import (
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
)
from headrace.protocol.records import build_plain_batch

GARBAGE = b"0\n\xff\xfe\x00garbage\x80"


class Nobody:
    def done(self, log, error):
        assert error is None

    def written(self, log):
        pass


@pytest.fixture
def stopped(make_node, tmp_path):
    """The log directory of a broker that was stopped cleanly, with one record in one topic."""
    node = make_node()
    log = node.controller.create("orders", 1, {}).partitions[0].led
    log.appender.stage_own(build_plain_batch([(b"k", b"v")], node.clock.now_ms()), node.clock.now_ms(), Nobody())
    node._end_of_turn()
    node.close()
    return tmp_path / "data"


@pytest.fixture
def warnings(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("headrace"), "propagate", True)
    return lambda: [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("name", [META_PROPERTIES_FILE, RECOVERY_POINT_FILE, LOG_START_FILE])
def test_a_file_of_bytes_that_are_no_text_is_named_with_its_remedy(make_node, stopped, name):
    (stopped / name).write_bytes(GARBAGE)
    expected = f"{re.escape(str(stopped / name))}: byte 2 of 13, 0xff, is not text; .*(restore|delete) it"
    with pytest.raises(OperatorError, match=expected):
        make_node()


def test_an_id_of_a_topic_that_is_no_text_is_named_and_the_topic_adopted(make_node, stopped, warnings):
    (stopped / "headrace-topics.journal").unlink()  # only then is it looked at
    file = stopped / "orders-0" / PARTITION_METADATA_FILE
    file.write_bytes(GARBAGE)
    node = make_node()
    assert node.topics.partition("orders", 0).led.end_offset == 1
    assert [each for each in warnings() if str(file) in each]


def test_damaged_leader_epochs_are_named_and_replaced(make_node, stopped, warnings):
    file = stopped / "orders-0" / LEADER_EPOCH_FILE
    file.write_bytes(GARBAGE)
    node = make_node()
    assert node.topics.partition("orders", 0).led.end_offset == 1
    (told,) = [each for each in warnings() if str(file) in each]
    assert "will be replaced" in told


@pytest.mark.parametrize(
    "name",
    [
        "junk.log",
        "junk.snapshot",
        "1.log",
        "-0000000000000000001.log",
        "99999999999999999999.log",
        "00000000000000000000 (copy).log",
        "²²²²²²²²²²²²²²²²²²²².log",
    ],
)
def test_a_file_that_is_no_part_of_the_log_is_left_alone_and_named(make_node, stopped, warnings, name):
    file = stopped / "orders-0" / name
    file.write_bytes(b"junk")
    node = make_node()
    log = node.topics.partition("orders", 0).led
    assert (log.start_offset, log.end_offset) == (0, 1)
    (told,) = [each for each in warnings() if str(file) in each]
    assert "ignored" in told
    assert "move it elsewhere" in told
    node.close()
    assert file.read_bytes() == b"junk"


def test_a_directory_with_the_name_of_a_segment_is_left_alone_and_named(make_node, stopped, warnings):
    os.mkdir(stopped / "orders-0" / "00000000000000000009.log")
    node = make_node()
    assert node.topics.partition("orders", 0).led.end_offset == 1
    assert any("00000000000000000009.log is ignored" in each for each in warnings())


def test_junk_with_the_name_of_an_exchange_is_removed_as_in_kafka(make_node, stopped):
    file = stopped / "orders-0" / "junk.log.swap"
    file.write_bytes(b"junk")
    node = make_node()
    assert node.topics.partition("orders", 0).led.end_offset == 1
    assert not file.exists()


def test_a_directory_that_ends_in_a_digit_of_another_script_is_no_partition(make_node, stopped):
    os.mkdir(stopped / "orders-²")
    assert make_node().topics.partition("orders", 0).led.end_offset == 1
