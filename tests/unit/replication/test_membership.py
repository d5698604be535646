"""Since which incarnation a broker has lost nothing, by what it stood on before and what it stands on now."""

import pytest

from headrace.replication.membership import intact_from
from headrace.replication.znodes import Footing, read_footing, write_footing

BEFORE = Footing(boot_id="b1", directories=frozenset({"d1", "d2"}), intact_from=3)


@pytest.mark.parametrize(
    ("boot_id", "directories", "clean", "since"),
    [
        ("b1", {"d1", "d2"}, False, 3),  # killed: the pages are in the memory of the machine
        ("b2", {"d1", "d2"}, False, 7),  # the machine was started again: they are not
        ("b2", {"d1", "d2"}, True, 3),  # but a clean stop had written them
        ("b1", {"d1"}, True, 7),  # a directory is away
        ("b1", {"d1", "new"}, False, 7),  # a disk was replaced
        ("b1", {"d1", "d2", "new"}, False, 3),  # one was added
    ],
)
def test_a_broker_is_intact_as_long_as_nothing_it_wrote_can_be_lost(boot_id, directories, clean, since):
    assert intact_from(BEFORE, boot_id, frozenset(directories), clean=clean, now=7) == since


def test_a_broker_that_was_never_there_begins_now():
    assert intact_from(None, "b1", frozenset({"d1"}), clean=True, now=1) == 1


def test_what_a_broker_stood_on_is_read_as_it_was_written():
    assert read_footing(1, write_footing(BEFORE)) == BEFORE
