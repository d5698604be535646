"""How far the replicas of one partition are, as its leader knows it: the ISR and the high watermark. No IO, no clock.

A leader hears what its followers have by the offsets that they fetch from. What all members of the ISR have is
committed: consumers may see it, and `acks=all` is answered. So the ISR and the high watermark belong together:

- The ISR is changed by a compare-and-set on the partition's state in the tree, one change at a time. From the moment at
  which a change is proposed until its outcome is known, the *maximal* ISR counts: the members by the last known state
  and those that the change adds. A removal that is not known to be written removes nobody.
- The high watermark is the lowest log end in the maximal ISR. It never falls, and it moves only while the ISR has as
  many members as `min.insync.replicas` asks for.
- A change whose outcome is unknown stays pending until that is settled: by a state that is newer than the one which the
  change replaces, or by one that was read when the change could not be written any more.

A leader that was deposed without knowing it therefore acknowledges nothing: its ISR holds its successor, which fetches
from it no more, and its change of the ISR is refused, since the state has another version by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.replication.election import Brokers
from headrace.replication.image import PartitionImage

NOTHING_FETCHED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An ISR to be written if the state still has this version, and each broker that joins its incarnation."""

    isr: Mapping[int, int]  # with the incarnation of each member
    expected_version: int
    joining: Mapping[int, int]


class _Follower:
    __slots__ = ("caught_up_ms", "end", "fetched_ms", "incarnation", "leader_end")

    def __init__(self, now_ms: int) -> None:
        self.end = NOTHING_FETCHED
        self.incarnation = NOTHING_FETCHED
        self.caught_up_ms = now_ms  # a new leader gives each its time
        self.fetched_ms = now_ms
        self.leader_end = NOTHING_FETCHED  # where this leader's log ended at the fetch before


class LeaderState:
    def __init__(
        self, broker: int, state: PartitionImage, *, epoch_start: int, high_watermark: int, min_isr: int, now_ms: int
    ) -> None:
        """`epoch_start` is the end of the log at the moment at which this broker became leader."""
        self.high_watermark = high_watermark
        self.min_isr = min_isr
        self._me = broker
        self._epoch_start = epoch_start
        self._end = epoch_start
        self._pending: Proposal | None = None
        self._followers: dict[int, _Follower] = {}
        self._now_ms = now_ms
        self.observed(state)

    # ── what is known ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def isr(self) -> tuple[int, ...]:
        """By the last known state."""
        return tuple(self._isr)

    @property
    def has_enough(self) -> bool:
        """Whether a record that is written now can be committed."""
        return len(self._isr) >= min(self.min_isr, len(self._replicas))

    def end_of(self, broker: int) -> int:
        """Where the log of a replica ends, as far as it was heard; NOTHING_FETCHED of one that was not."""
        if broker == self._me:
            return self._end
        follower = self._followers.get(broker)
        return follower.end if follower is not None else NOTHING_FETCHED

    def incarnation_of(self, broker: int) -> int:
        """Of a follower, by its last fetch."""
        follower = self._followers.get(broker)
        return follower.incarnation if follower is not None else NOTHING_FETCHED

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────

    def appended(self, end: int) -> None:
        """The leader's own log ends here now."""
        self._end = end
        self._move()

    def fetched(self, broker: int, incarnation: int, offset: int, now_ms: int) -> None:
        """A follower asks for what comes at this offset: it has everything before. A fetch of an older incarnation of
        its broker, which was under way for long, says nothing."""
        follower = self._followers.get(broker)
        if follower is None or incarnation < follower.incarnation:
            return
        if offset >= self._end:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif incarnation == follower.incarnation and offset >= follower.leader_end >= 0:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.incarnation = incarnation
        follower.end = offset
        follower.fetched_ms = now_ms
        follower.leader_end = self._end
        self._now_ms = now_ms
        self._move()

    def observed(self, state: PartitionImage, *, is_settled: bool = False) -> None:
        """The state as the tree has it, in the epoch of this leader; `is_settled` if it was read when no change of ours
        was on its way any more."""
        pending = self._pending
        if pending is not None and not is_settled and state.version <= pending.expected_version:
            return
        self._replicas = state.replicas
        self._isr = {each: state.isr_incarnation(each) for each in state.isr if each in state.replicas}
        self._version = state.version
        self._pending = None
        for gone in [each for each in self._followers if each not in state.replicas]:
            del self._followers[gone]
        for each in state.replicas:
            if each != self._me and each not in self._followers:
                self._followers[each] = _Follower(self._now_ms)
        self._move()

    # ── changing the ISR ─────────────────────────────────────────────────────────────────────────────────────────

    def propose(
        self, brokers: Brokers, *, now_ms: int, lag_ms_max: int, offline: Iterable[int] = ()
    ) -> Proposal | None:
        """The change of the ISR that should be written now, if there is one and none is under way. It is pending from
        here on, until `accepted` or `observed`."""
        if self._pending is not None:
            return None
        away = set(offline)
        stay = {
            each: incarnation
            for each, incarnation in self._isr.items()
            if each == self._me
            or (
                each in brokers
                and each not in away
                and brokers[each].intact_from <= incarnation
                and now_ms - self._followers[each].caught_up_ms <= lag_ms_max
            )
        }
        joining = {
            each: brokers[each].incarnation
            for each in self._replicas
            if each not in self._isr and each in brokers and each not in away and self._may_join(each, brokers)
        }
        if len(stay) == len(self._isr) and not joining:
            return None
        wanted = {**stay, **joining}
        isr = {each: wanted[each] for each in self._replicas if each in wanted}
        self._pending = Proposal(isr=isr, expected_version=self._version, joining=joining)
        return self._pending

    def _may_join(self, each: int, brokers: Brokers) -> bool:
        follower = self._followers[each]
        return (
            not brokers[each].shutting_down
            and follower.incarnation == brokers[each].incarnation
            and follower.end >= max(self.high_watermark, self._epoch_start)
        )

    def accepted(self) -> None:
        """The pending change was written. One that was refused, or whose answer never came, stays pending until a state
        that settles it is `observed`."""
        if self._pending is None:
            return
        self._isr = dict(self._pending.isr)
        self._version = self._pending.expected_version + 1
        self._pending = None
        self._move()

    # ── committing ───────────────────────────────────────────────────────────────────────────────────────────────

    def _move(self) -> None:
        if not self.has_enough:
            return
        lowest = self._end
        for each in self._isr if self._pending is None else {**self._isr, **self._pending.joining}:
            if each != self._me:
                lowest = min(lowest, self._followers[each].end)
        self.high_watermark = max(self.high_watermark, lowest)
