"""Markers on their way to the logs of this broker: whoever waits for them is told, whatever happens on the way."""

from types import SimpleNamespace

import pytest

from headrace.broker.local_markers import LocalMarkers
from headrace.coordinator.transactions.markers import TransactionEnd
from headrace.core.clock import ManualClock
from headrace.core.errors import InvariantError, StorageError

END = TransactionEnd(producer_id=7, producer_epoch=0, coordinator_epoch=0, commit=True)


class Topics:
    """Two partitions of one topic; staging in the first one fails."""

    def __init__(self, error):
        self._error = error
        self.staged = []

    def partition(self, topic, index):
        def stage_own(batch, now_ms, waiter, marker):
            if index == 0:
                raise self._error
            self.staged.append(index)
            waiter.done(None, None)

        producers = SimpleNamespace(check_coordinator=lambda producer_id, epoch: None)
        return SimpleNamespace(led=SimpleNamespace(producers=producers, appender=SimpleNamespace(stage_own=stage_own)))


def write(error):
    topics, told = Topics(error), []
    LocalMarkers(topics, ManualClock(), lambda *_: None).write(END, [("t", 0), ("t", 1)], told.append)
    return topics.staged, told


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyError("a bug"), StorageError("offline")])
def test_a_marker_that_cannot_be_staged_is_told_as_an_error_and_the_others_are_written(error):
    staged, told = write(error)
    assert staged == [1]
    assert [type(each) for each in told] == [StorageError]


def test_a_broken_invariant_is_nobody_s_answer():
    with pytest.raises(InvariantError):
        write(InvariantError("broken"))
