"""What each request does to a classic group. See `state` for the states, and for the theory."""

from typing import Final

from headrace.coordinator.classic.effects import (
    Answer,
    AssignmentStored,
    Effect,
    ReplacementStored,
    Store,
    Stored,
    join_refused,
    sync_refused,
    synced,
)
from headrace.coordinator.classic.facts import GroupFacts, GroupState
from headrace.coordinator.classic.line import EventLine
from headrace.coordinator.classic.members import JoinRequest, Member, SyncRequest, Ticket, protocol_bytes
from headrace.coordinator.classic.state import GroupMachine
from headrace.coordinator.classic.steps import Steps
from headrace.coordinator.deadlines import Now
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.member_budget import MemberBudget
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NON_EMPTY_GROUP,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = (
    300_000  # a new member that waits longer is forgotten; if it still lives it joins again
)


class ClassicGroup:
    def __init__(self, group_id: str, settings: GroupSettings, now: Now, budget: MemberBudget | None = None) -> None:
        self._settings = settings
        self._budget = MemberBudget(settings) if budget is None else budget
        self.group_id = group_id
        self.facts = GroupFacts(group_id, now)
        self._machine = GroupMachine(self.facts, settings, self._budget, now)
        self._line = EventLine()
        self.deadlines = self._machine.deadlines
        self.expiry_waits = False  # in the line

    # ── events, one after the other ──────────────────────────────────────────────────────────────────────────────

    @property
    def is_busy(self) -> bool:
        """An event takes several turns; others may wait for it."""
        return self._line.is_busy

    def go_on(self, now: Now) -> list[Effect]:
        """A step of the event under way, or the first steps of some that have waited for it."""
        self._machine.now = now
        self._line.go_on()
        return self._machine.take_effects()

    def _happens(self, event: Steps[None], now: Now) -> list[Effect]:
        if self._line.is_busy:
            self._line.add(event)
            return []
        self._machine.now = now
        self._line.begin(event)
        return self._machine.take_effects()

    # ── deadlines, and what comes from outside ───────────────────────────────────────────────────────────────────

    def expire(self, now: Now) -> list[Effect]:
        """What is due by now, or a slice of it."""
        if self.expiry_waits:
            return []
        self.expiry_waits = True
        return self._happens(self._expire(), now)

    def _expire(self) -> Steps[None]:
        self.expiry_waits = False
        yield from self._machine.expire()

    def loaded(self, now: Now) -> list[Effect]:
        """Read back at start."""
        return self._happens(self._machine.loaded(), now)

    def rebalance(self, now: Now) -> list[Effect]:
        """From outside: the group came over from the other protocol."""
        return self._happens(self._machine.rebalance(), now)

    def die(self, code: int, now: Now) -> list[Effect]:
        """Deleted, never written, or handed over: whoever waits is answered with the code. This waits for nothing: the
        event under way is given up, which has left every ticket with its member; those in line find a dead group."""
        self._machine.now = now
        self._line.interrupt(self._machine.die(code))
        return self._machine.take_effects()

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────

    def delete_fault(self) -> int:
        """Why the group cannot be deleted now."""
        code = self.facts.delete_fault()
        return NON_EMPTY_GROUP if code == NONE and self.is_busy else code

    def delete_offsets_fault(self) -> int:
        """Of consumers it is known which topics they use; of others it is not, and nothing of theirs may go."""
        is_known = self.facts.is_of_consumers and self.facts.state is not GroupState.DEAD
        return NONE if is_known else self.delete_fault()

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, request: JoinRequest, ticket: Ticket, now: Now) -> list[Effect]:
        return self._happens(self._join(request, ticket), now)

    def _join(self, request: JoinRequest, ticket: Ticket) -> Steps[None]:
        facts, machine = self.facts, self._machine
        is_unknown = not request.member_id
        echoed = request.member_id
        if facts.state is GroupState.DEAD:
            machine.answer(ticket, join_refused(COORDINATOR_NOT_AVAILABLE, echoed))
        elif not self._has_room_for(request.member_id):
            machine.forget(request.member_id, GROUP_MAX_SIZE_REACHED)
            machine.answer(ticket, join_refused(GROUP_MAX_SIZE_REACHED))
            yield from machine.complete_join_if_all_have()
        elif (code := self._size_fault(request)) != NONE:
            machine.answer(ticket, join_refused(code, echoed))
        elif not self._speaks(request):
            machine.answer(ticket, join_refused(INCONSISTENT_GROUP_PROTOCOL, echoed))
        elif is_unknown and request.instance_id is not None:
            yield from self._join_static(request, request.instance_id, ticket)
        elif is_unknown and request.must_know_member_id:
            member_id = request.new_member_id()
            facts.roster.add_pending(member_id)
            machine.expect_heartbeat(member_id, request.session_timeout_ms)
            machine.answer(ticket, join_refused(MEMBER_ID_REQUIRED, member_id))
        elif is_unknown:
            yield from self._add(request, request.new_member_id(), ticket)
        elif request.member_id in facts.roster.pending and request.instance_id is None:
            yield from self._add(request, request.member_id, ticket)
        else:
            yield from self._join_again(request, ticket)

    def sync(self, request: SyncRequest, ticket: Ticket, now: Now) -> list[Effect]:
        return self._happens(self._sync(request, ticket), now)

    def _sync(self, request: SyncRequest, ticket: Ticket) -> Steps[None]:
        facts, machine, member_id = self.facts, self._machine, request.member_id
        code = facts.sync_fault(request)
        if code != NONE:
            machine.answer(ticket, sync_refused(code))
            return
        member = facts.roster[member_id]
        machine.asked_for_its_part(member_id)
        if facts.state is GroupState.STABLE:
            machine.answer(ticket, synced(facts.protocol_type, facts.protocol_name, member.assignment))
            return
        before, member.sync_ticket = member.sync_ticket, ticket
        machine.answer(before, sync_refused(REBALANCE_IN_PROGRESS))
        if member_id == facts.roster.leader:
            yield from machine.share_out(member, request.assignment)

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None, now: Now) -> int:
        self._machine.now = now
        code = self.facts.generation_fault(member_id, generation, instance_id)
        if code != NONE:
            return code
        self._machine.expect_heartbeat(member_id, self.facts.roster[member_id].session_timeout_ms)
        return REBALANCE_IN_PROGRESS if self.facts.state is GroupState.PREPARING else NONE

    def leave(self, leaving: list[tuple[str, str | None]], ticket: Ticket, now: Now) -> list[Effect]:
        return self._happens(self._leave_all(leaving, ticket), now)

    def _leave_all(self, leaving: list[tuple[str, str | None]], ticket: Ticket) -> Steps[None]:
        machine = self._machine
        if self.facts.state is GroupState.DEAD:
            machine.answer(ticket, {"error_code": COORDINATOR_NOT_AVAILABLE, "members": []})
            return
        results = [
            {
                "member_id": member_id,
                "group_instance_id": instance_id,
                "error_code": self._leave(member_id, instance_id),
            }
            for member_id, instance_id in leaving
        ]
        body = {"error_code": NONE, "members": results}
        is_told = bool(self.facts.roster.members) or all(result["error_code"] != NONE for result in results)
        if is_told:
            machine.answer(ticket, body)  # nothing is written now
            if self._line.is_waited_for:
                yield  # the next one in line may be about as many
        effects_before = len(machine.effects)
        if any(result["error_code"] == NONE for result in results):
            yield from machine.rebalance_or_complete_join()
        if is_told:
            return
        stores = [effect for effect in machine.effects[effects_before:] if isinstance(effect, Store)]
        if stores:
            stores[0].answers += (Answer(ticket, body),)
        else:
            machine.answer(ticket, body)

    def touch(self, member_id: str, now: Now) -> None:
        """A commit of offsets is as good as a heartbeat."""
        self._machine.now = now
        if member_id in self.facts.roster and self.facts.state in (GroupState.STABLE, GroupState.PREPARING):
            self._machine.expect_heartbeat(member_id, self.facts.roster[member_id].session_timeout_ms)

    def stored(self, what: Stored | None, code: int, now: Now) -> list[Effect]:
        """What a `Store` asked for is safe, or (code) could not be written."""
        if isinstance(what, AssignmentStored):
            return self._happens(self._machine.assignment_stored(what, code), now)
        if isinstance(what, ReplacementStored):
            return self._happens(self._replacement_stored(what, code), now)
        return []

    # ── joining ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _has_room_for(self, member_id: str) -> bool:
        limit, state, roster = self._settings.max_size, self.facts.state, self.facts.roster
        member = roster.get(member_id)
        if state is GroupState.PREPARING:  # joins are counted: the last to come back to a group too large are left out
            return (member is not None and member.join_ticket is not None) or roster.joins_waiting < limit
        if state is GroupState.EMPTY:
            return True
        return member is not None or len(roster) < limit

    def _size_fault(self, request: JoinRequest) -> int:
        """Whether the group, and all groups together, may remember what this member says."""
        roster = self.facts.roster
        known_id = request.member_id
        if not known_id and request.instance_id is not None:
            known_id = roster.id_of_instance(request.instance_id) or ""
        known = roster.get(known_id)
        added = request.byte_count - (0 if known is None else known.byte_count)
        is_pending = not request.member_id and request.instance_id is None and request.must_know_member_id
        try:
            if is_pending:
                self._budget.admit_pending(self.group_id, len(roster.pending), self._machine.now.ms)
                added -= protocol_bytes(request.protocols)  # it says them again when it joins with its id
            self._budget.admit(self.group_id, roster.byte_count, added, self._machine.now.ms)
        except PeerError as error:
            return error.code
        return NONE

    def _speaks(self, request: JoinRequest) -> bool:
        facts = self.facts
        if facts.state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == facts.protocol_type and facts.roster.speak_any(
            name for name, _ in request.protocols
        )

    def _add(self, request: JoinRequest, member_id: str, ticket: Ticket) -> Steps[None]:
        facts, machine = self.facts, self._machine
        machine.came()
        if not facts.roster.members:
            facts.protocol_type = request.protocol_type
        facts.roster.add(
            Member(
                member_id=member_id,
                instance_id=request.instance_id,
                client_id=request.client_id,
                client_host=request.client_host,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                session_timeout_ms=request.session_timeout_ms,
                protocols=request.protocols,
                is_new=True,
                join_ticket=ticket,
            )
        )
        machine.expect_heartbeat(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        yield from machine.rebalance_or_complete_join()

    def _join_again(self, request: JoinRequest, ticket: Ticket) -> Steps[None]:
        facts, machine, roster = self.facts, self._machine, self.facts.roster
        code = facts.identity_fault(request.member_id, request.instance_id)
        if code != NONE:
            machine.answer(ticket, join_refused(code, request.member_id))
            return
        member = roster[request.member_id]
        is_same = member.protocols == request.protocols
        is_leader = roster.leader == member.member_id
        # A leader that joins a stable group wants a rebalance: what it shares out has changed, not what it says.
        if is_same and is_leader and facts.state is GroupState.COMPLETING:
            machine.answer(roster.wait_for_join(member, ticket), join_refused(REBALANCE_IN_PROGRESS, member.member_id))
            members = yield from facts.members_told()
            machine.answer(roster.take_join(member), facts.joined(member, members))
        elif is_same and not is_leader and facts.state in (GroupState.COMPLETING, GroupState.STABLE):
            machine.answer(ticket, facts.joined(member, []))
        else:
            self._update(member, request, ticket)
            yield from machine.rebalance_or_complete_join()

    def _update(self, member: Member, request: JoinRequest, ticket: Ticket) -> None:
        self.facts.roster.change_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        before = self.facts.roster.wait_for_join(member, ticket)
        self._machine.answer(before, join_refused(REBALANCE_IN_PROGRESS, member.member_id))

    def _join_static(self, request: JoinRequest, instance_id: str, ticket: Ticket) -> Steps[None]:
        facts, machine, roster = self.facts, self._machine, self.facts.roster
        old_id = roster.id_of_instance(instance_id)
        new_id = request.new_member_id()
        if old_id is None:
            yield from self._add(request, new_id, ticket)
            return
        member = roster[old_id]
        before = ReplacementStored(
            member,
            facts.generation,
            new_id,
            old_id,
            roster.leader,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            request.may_skip_assignment,
        )
        machine.replace(member, new_id)
        self._update(member, request, ticket)
        if facts.state is GroupState.STABLE and (yield from roster.chosen_protocol()) == facts.protocol_name:
            yield from machine.store(None, before)
        elif facts.state is GroupState.COMPLETING:  # the leader may be sharing out to the former self at this moment
            yield from machine.prepare_rebalance()
        else:
            yield from machine.rebalance_or_complete_join()

    def _replacement_stored(self, what: ReplacementStored, code: int) -> Steps[None]:
        facts, machine, roster = self.facts, self._machine, self.facts.roster
        member = roster.get(what.new_id)
        if member is not what.member or facts.state is not GroupState.STABLE or facts.generation != what.generation:
            return  # it has been replaced again, or a rebalance has begun, which answers its join
        if code == NONE:
            skips = what.may_skip_assignment and roster.leader == what.new_id
            members = (yield from facts.members_told()) if skips else []
            body = dict(facts.joined(member, members))
            # An older leader is not told that it leads: it would share out, though nobody waits for that.
            body |= {"skip_assignment": skips} if what.may_skip_assignment else {"leader": what.old_leader or ""}
            machine.answer(roster.take_join(member), body)
            machine.expect_heartbeat(what.new_id, member.session_timeout_ms)  # it may have run out while it waited
            return
        machine.answer(roster.take_join(member), join_refused(code))
        roster.change_protocols(member, what.old_protocols)
        member.rebalance_timeout_ms = what.old_rebalance_timeout_ms
        member.session_timeout_ms = what.old_session_timeout_ms
        machine.replace(member, what.old_id)

    def _leave(self, member_id: str, instance_id: str | None) -> int:
        facts = self.facts
        if not member_id:  # by an administrator, who knows the instance only
            found = None if instance_id is None else facts.roster.id_of_instance(instance_id)
            if found is None:
                return UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id not in facts.roster.pending:
            code = facts.identity_fault(member_id, instance_id)
            if code != NONE:
                return code
        self._machine.forget(member_id, UNKNOWN_MEMBER_ID)
        return NONE
