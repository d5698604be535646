"""Seeded runs of the model of replication: nothing that was acknowledged is lost, whatever happens to whom."""

from collections.abc import Iterable
from random import Random

import pytest
import replica_model
from replica_model import BrokenPromiseError, Model

from headrace.replication.image import BrokerImage
from headrace.replication.leader_state import LeaderState

STEPS = 1500


def run(seed: int, **options: bool) -> None:
    model = Model(Random(seed), brokers=3 + seed % 2, **options)
    try:
        for _ in range(STEPS):
            model.step()
        before = model.acknowledged_count
        model.calm_down()
    except BrokenPromiseError as error:
        raise AssertionError(f"seed {seed}, after {model.steps} steps: {error}") from error
    assert model.acknowledged_count > before, f"seed {seed}: nothing is acknowledged although everybody is back"


def run_all(seeds: Iterable[int], **options: bool) -> None:
    for seed in seeds:
        run(seed, **options)


def test_nothing_that_was_acknowledged_is_lost(seeds: range) -> None:
    run_all(seeds)


def test_an_unclean_election_is_the_only_way_to_lose_a_record() -> None:
    run_all(range(10), unclean=True)


def _commits_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderState, "_move", lambda self: setattr(self, "high_watermark", self._end))


def _trusts_lost_disks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica_model, "BrokerImage", lambda **told: BrokerImage(**{**told, "intact_from": 0}))


def _forgets_a_change_under_way(patch: pytest.MonkeyPatch) -> None:
    observed = LeaderState.observed
    patch.setattr(LeaderState, "observed", lambda self, state, **_: observed(self, state, is_settled=True))


def _lets_followers_join_that_are_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderState, "_may_join", lambda self, each, brokers: self._followers[each].end >= 0)


@pytest.mark.parametrize(
    "fault", [_commits_alone, _trusts_lost_disks, _forgets_a_change_under_way, _lets_followers_join_that_are_behind]
)
def test_the_model_notices_a_rule_that_is_left_out(fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        run_all(range(60))
