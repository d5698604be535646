"""The simulation can fail: each of these breaks one part of the broker, and some seed must notice."""

import pytest
from sim_history import ViolationError
from sim_scenario import simulate

from headrace.coordinator.classic.facts import GroupFacts
from headrace.coordinator.consumer import reconciliation as member_reconciliation
from headrace.coordinator.consumer.groups import ConsumerGroups
from headrace.coordinator.offsets.store import OffsetStore
from headrace.coordinator.transactions.state import TransactionMachine
from headrace.log.appender import Appender
from headrace.log.flush_state import FlushState
from headrace.log.partition_log import PartitionLog
from headrace.log.producer_state import ProducerState
from headrace.protocol.error_codes import NONE

SEEDS_MAX = 60

stage, towards = Appender.stage, member_reconciliation._towards


def answers_before_the_write(patch):
    def staged(appender, data, start, end, now_ms, waiter, **more):
        found = stage(appender, data, start, end, now_ms, waiter, **more)
        last = appender.append_sets[-1] if appender.append_sets else None
        if last is not None and waiter in (*last.waiters, *last.commit_waiters):
            (last.waiters if waiter in last.waiters else last.commit_waiters).remove(waiter)
            waiter.done(appender.log, None)
        return found

    patch.setattr(Appender, "stage", staged)


def answers_before_the_flush(patch):
    patch.setattr(FlushState, "holds_back", lambda state, group, messages_max: False)


def takes_a_batch_twice(patch):
    patch.setattr(ProducerState, "check", lambda *_: None)


def shows_open_transactions(patch):
    patch.setattr(PartitionLog, "last_stable_offset", property(lambda log: log.high_watermark))


def hides_which_were_aborted(patch):
    patch.setattr(PartitionLog, "aborted_between", lambda *_: ())


def does_not_fence_producers(patch):
    patch.setattr(TransactionMachine, "_of_another", lambda *_: NONE)


def commits_in_any_generation(patch):
    patch.setattr(GroupFacts, "commit_fault", lambda *_, **__: NONE)


def commits_in_any_epoch(patch):
    def no_fault(groups, group, member_id, epoch, instance_id, partitions, **_):
        return [NONE for _ in partitions]

    patch.setattr(ConsumerGroups, "commit_codes", no_fault)


def hands_over_before_the_owner_lets_go(patch):
    def hasty(current, target, target_epoch, subscribed, is_taken, owned):
        return towards(current, target, target_epoch, subscribed, lambda *_: False, owned)

    patch.setattr(member_reconciliation, "_towards", hasty)


def keeps_offsets_of_aborted_transactions(patch):
    end = OffsetStore.end_transaction
    patch.setattr(OffsetStore, "end_transaction", lambda store, producer_id, _: end(store, producer_id, True))


CASES = [
    (answers_before_the_write, "manual", "acknowledged"),
    (answers_before_the_flush, "manual", "acknowledged|was read|committed offset|visible"),
    (takes_a_batch_twice, "manual", "is twice|is number"),
    (shows_open_transactions, "transactions", "whose commit nobody has asked for"),
    (hides_which_were_aborted, "transactions", "whose commit nobody has asked for|which was aborted"),
    (does_not_fence_producers, "zombies", "."),
    (commits_in_any_generation, "classic", "in generation|went back|own"),
    (commits_in_any_epoch, "consumer", "went back|own"),
    (hands_over_before_the_owner_lets_go, "consumer", "would belong to two|belongs to"),
    (keeps_offsets_of_aborted_transactions, "exactly-once", "nobody has committed|came out as|went back"),
]


@pytest.mark.parametrize(("breaks", "kind", "noticed"), CASES, ids=[each[0].__name__ for each in CASES])
def test_a_broker_that(breaks, kind, noticed, monkeypatch):
    breaks(monkeypatch)
    with pytest.raises(ViolationError, match=noticed):
        _run_all(kind)


def _run_all(kind):
    for seed in range(SEEDS_MAX):
        simulate(seed, [kind])
