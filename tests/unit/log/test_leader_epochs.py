import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import InvariantError, OperatorError
from headrace.log.leader_epochs import UNDEFINED, LeaderEpochs


def made(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


def test_an_epoch_is_news_once() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest is None
    assert epochs.assign(2, 10)
    assert not epochs.assign(2, 10)
    assert not epochs.assign(2, 11)
    assert epochs.latest == 2
    assert epochs.entries == [(2, 10)]


def test_the_same_epoch_from_an_earlier_offset_replaces_the_entry() -> None:
    epochs = made((2, 10))
    assert epochs.assign(2, 4)
    assert epochs.entries == [(2, 4)]


def test_entries_that_contradict_a_new_one_are_dropped() -> None:
    assert made((1, 0), (2, 6), (3, 9), (2, 7)).entries == [(1, 0), (2, 7)]
    assert made((1, 0), (2, 6), (3, 9), (4, 6)).entries == [(1, 0), (4, 6)]
    assert made((1, 5), (2, 5)).entries == [(2, 5)]


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_our_bug(epoch: int, start: int) -> None:
    with pytest.raises(InvariantError):
        LeaderEpochs().assign(epoch, start)


@pytest.mark.parametrize(("offset", "epoch"), [(9, None), (10, 2), (11, 2), (19, 2), (20, 5), (99, 5)])
def test_the_epoch_that_wrote_an_offset_is_the_last_one_that_began_before(offset: int, epoch: int | None) -> None:
    assert made((2, 10), (5, 20)).epoch_for(offset) == epoch


@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (-1, UNDEFINED),  # a client that does not know its epoch
        (1, (1, 10)),  # before all known ones: its records are gone
        (2, (2, 20)),
        (3, (2, 20)),  # between: the epoch before it
        (5, (5, 30)),
        (7, (7, 42)),  # the latest: the end of the log
        (8, UNDEFINED),  # newer than all known ones
    ],
)
def test_the_end_of_an_epoch_is_the_start_of_the_next(requested: int, answer: tuple[int, int]) -> None:
    assert made((2, 10), (5, 20), (7, 30)).end_offset_for(requested, 42) == answer


def test_without_entries_no_epoch_has_an_end() -> None:
    assert LeaderEpochs().end_offset_for(0, 42) == UNDEFINED


def test_a_cut_at_the_end_forgets_epochs_that_began_at_or_after_it() -> None:
    epochs = made((2, 6), (3, 8), (4, 11))
    assert not epochs.truncate_from_end(12)
    assert epochs.truncate_from_end(11)
    assert epochs.entries == [(2, 6), (3, 8)]
    assert epochs.truncate_from_end(0)
    assert len(epochs) == 0
    assert not epochs.truncate_from_end(0)


def test_a_cut_at_the_start_moves_the_epoch_that_wrote_it() -> None:
    epochs = made((2, 6), (3, 8), (4, 11))
    assert not epochs.truncate_from_start(5)
    assert not epochs.truncate_from_start(6)
    assert epochs.truncate_from_start(7)
    assert epochs.entries == [(2, 7), (3, 8), (4, 11)]
    assert epochs.truncate_from_start(9)
    assert epochs.entries == [(3, 9), (4, 11)]
    assert epochs.truncate_from_start(11)
    assert epochs.entries == [(4, 11)]
    assert epochs.truncate_from_start(50)
    assert epochs.entries == [(4, 50)]


def test_the_checkpoint_is_kafkas_text() -> None:
    assert made((0, 0), (3, 17)).encode() == "0\n2\n0 0\n3 17\n"
    assert LeaderEpochs.decode("0\n1\n0 0\n", "f").entries == [(0, 0)]  # written by Apache Kafka 4.3.1
    assert LeaderEpochs.decode("", "f").entries == []


@pytest.mark.parametrize("text", ["1\n0\n", "0\n2\n0 0\n", "0\n1\n0\n", "0\n1\n0 x\n", "0\n1\n-1 0\n", "0\n"])
def test_a_malformed_checkpoint_names_file_line_and_remedy(text: str) -> None:
    with pytest.raises(OperatorError, match=r"data/t-0/leader-epoch-checkpoint, line \d: .*; delete it"):
        LeaderEpochs.decode(text, "data/t-0/leader-epoch-checkpoint")


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=30), st.integers(-1, 21))
def test_whatever_is_assigned_epochs_and_offsets_grow_and_the_text_keeps_them(
    entries: list[tuple[int, int]], asked: int
) -> None:
    epochs = made(*entries)
    kept = epochs.entries
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(kept))
    again = LeaderEpochs.decode(epochs.encode(), "f")
    assert again.entries == kept
    found, end = epochs.end_offset_for(asked, 100)
    if kept and 0 <= asked <= kept[-1][0]:
        assert found <= asked
        assert end == next((start for epoch, start in kept if epoch > asked), 100)
    else:
        assert (found, end) == UNDEFINED
