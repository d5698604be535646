"""Who is in charge of a partition, from what is heard of its leader: no news is believed that an older epoch brings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.shard_states import ANSWERS, LEGAL_NEXT, NO_EPOCH, ShardState, ShardStates
from headrace.core.errors import InvariantError
from headrace.protocol.error_codes import COORDINATOR_LOAD_IN_PROGRESS, NONE, NOT_COORDINATOR

ABSENT, LOADING, ACTIVE, LOST = ShardState.ABSENT, ShardState.LOADING, ShardState.ACTIVE, ShardState.LOST


@pytest.fixture
def states():
    return ShardStates()


def begin(states, state, epoch=5):
    """A shard in that state, of partition 0."""
    if state is not ABSENT:
        states.lead(0, epoch)
    if state is ACTIVE:
        states.loaded(0)
    if state is LOST:
        states.lost(0)
    assert states.state(0) is state


def test_a_shard_is_absent_until_it_is_led_here_and_served_when_it_is_read(states):
    assert (states.state(0), states.epoch(0), states.answer(0)) == (ABSENT, NO_EPOCH, NOT_COORDINATOR)
    assert states.lead(0, 5)
    assert (states.state(0), states.epoch(0), states.answer(0)) == (LOADING, 5, COORDINATOR_LOAD_IN_PROGRESS)
    assert states.all_in(LOADING) == [0]
    states.loaded(0)
    assert (states.state(0), states.answer(0), states.answer(1)) == (ACTIVE, NONE, NOT_COORDINATOR)
    assert states.resign(0, 6)
    assert (states.state(0), states.epoch(0), states.answer(0)) == (ABSENT, 6, NOT_COORDINATOR)


def test_what_cannot_be_read_has_no_coordinator_until_it_is_led_in_a_newer_epoch(states):
    begin(states, LOST)
    assert states.answer(0) == NOT_COORDINATOR
    assert not states.lead(0, 5)
    assert states.lead(0, 6)
    assert states.state(0) is LOADING


@pytest.mark.parametrize("state", ShardState)
def test_a_stale_epoch_changes_nothing(states, state):
    begin(states, state)
    before = states.epoch(0)
    if state is ABSENT:
        states.resign(0, 5)
        before = 5
    assert not states.lead(0, 4)
    assert not states.resign(0, 4)
    assert (states.state(0), states.epoch(0)) == (state, before)


@pytest.mark.parametrize("state", [LOADING, ACTIVE, LOST])
def test_the_same_news_twice_is_none(states, state):
    begin(states, state)
    assert not states.lead(0, 5)
    assert states.state(0) is state


def test_a_newer_epoch_of_its_own_begins_a_load_again_and_leaves_what_is_served_alone(states):
    begin(states, LOADING)
    assert states.lead(0, 6)
    states.loaded(0)
    assert not states.lead(0, 7)
    assert (states.state(0), states.epoch(0)) == (ACTIVE, 7)


@pytest.mark.parametrize("state", [LOADING, ACTIVE, LOST])
def test_what_is_given_up_may_come_back_in_the_same_epoch(states, state):
    """As when its directory was away."""
    begin(states, state)
    assert states.resign(0, 5)
    assert not states.resign(0, 5)
    assert states.lead(0, 5)


@pytest.mark.parametrize("state", ShardState)
def test_a_topic_that_is_deleted_takes_its_epochs_along(states, state):
    begin(states, state)
    assert states.resign(0, None) == (state is not ABSENT)
    assert (states.state(0), states.epoch(0)) == (ABSENT, NO_EPOCH)
    assert states.lead(0, 0)


@pytest.mark.parametrize("state", [ABSENT, ACTIVE, LOST])
@pytest.mark.parametrize("end", ["loaded", "lost"])
def test_only_a_load_can_end(states, state, end):
    begin(states, state)
    with pytest.raises(InvariantError, match=f"{state.value} cannot become"):
        getattr(states, end)(0)


def test_each_state_has_its_successors_and_its_answer():
    assert LEGAL_NEXT.keys() == ANSWERS.keys() == set(ShardState)


EVENTS = st.lists(
    st.tuples(st.sampled_from(("lead", "resign", "delete", "loaded", "lost")), st.integers(0, 4)), max_size=40
)


@given(EVENTS)
def test_an_epoch_never_falls_and_a_load_is_asked_for_when_and_only_when_one_begins(events):
    states = ShardStates()
    for event, epoch in events:
        state, known = states.state(0), states.epoch(0)
        if event == "lead":
            begins = states.lead(0, epoch)
            assert begins == (states.state(0) is LOADING and (state is not LOADING or states.epoch(0) != known))
            assert states.state(0) is not ABSENT or epoch < known
        elif event in ("resign", "delete"):
            goes = states.resign(0, None if event == "delete" else epoch)
            assert goes == (state is not ABSENT and states.state(0) is ABSENT)
        elif state is LOADING:
            getattr(states, event)(0)
        if event != "delete":
            assert states.epoch(0) >= known
