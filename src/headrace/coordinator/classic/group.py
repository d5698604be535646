"""What each request does to a classic group. See `state` for the states, and for the theory."""

from collections.abc import Mapping
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
from headrace.coordinator.classic.facts import State
from headrace.coordinator.classic.members import JoinRequest, Member, Ticket, protocol_bytes
from headrace.coordinator.classic.state import SESSION, SYNC_DUE, GroupState
from headrace.coordinator.classic.steps import MEMBERS_PER_STEP, Steps
from headrace.coordinator.deadlines import Now
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    MESSAGE_TOO_LARGE,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = (
    300_000  # a new member that waits longer is forgotten; if it still lives it joins again
)


class ClassicGroup(GroupState):
    # ── requests ───────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, request: JoinRequest, ticket: Ticket, now: Now) -> list[Effect]:
        return self._happens(self._join(request, ticket), now)

    def _join(self, request: JoinRequest, ticket: Ticket) -> Steps[None]:
        is_unknown = not request.member_id
        echoed = request.member_id
        if self.state is State.DEAD:
            self._answer(ticket, join_refused(COORDINATOR_NOT_AVAILABLE, echoed))
        elif not self._has_room_for(request.member_id):
            self._forget(request.member_id, GROUP_MAX_SIZE_REACHED)
            self._answer(ticket, join_refused(GROUP_MAX_SIZE_REACHED))
            yield from self._complete_join_if_all_have()
        elif (code := self._size_fault(request)) != NONE:
            self._answer(ticket, join_refused(code, echoed))
        elif not self._speaks(request):
            self._answer(ticket, join_refused(INCONSISTENT_GROUP_PROTOCOL, echoed))
        elif is_unknown and request.instance_id is not None:
            yield from self._join_static(request, request.instance_id, ticket)
        elif is_unknown and request.must_know_member_id:
            member_id = request.new_member_id()
            self.roster.add_pending(member_id)
            self._expect_heartbeat(member_id, request.session_timeout_ms)
            self._answer(ticket, join_refused(MEMBER_ID_REQUIRED, member_id))
        elif is_unknown:
            yield from self._add(request, request.new_member_id(), ticket)
        elif request.member_id in self.roster.pending and request.instance_id is None:
            yield from self._add(request, request.member_id, ticket)
        else:
            yield from self._join_again(request, ticket)

    def sync(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        protocol_type: str | None,
        protocol_name: str | None,
        assignment: Mapping[str, bytes],
        ticket: Ticket,
        now: Now,
    ) -> list[Effect]:
        asked = (member_id, generation, instance_id, protocol_type, protocol_name)
        return self._happens(self._sync(*asked, assignment, ticket), now)

    def _sync(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        protocol_type: str | None,
        protocol_name: str | None,
        assignment: Mapping[str, bytes],
        ticket: Ticket,
    ) -> Steps[None]:
        code = self.sync_fault(member_id, generation, instance_id, protocol_type, protocol_name)
        if code != NONE:
            self._answer(ticket, sync_refused(code))
            return
        member = self.roster[member_id]
        self._sync_missing.discard(member_id)
        if not self._sync_missing:
            self.deadlines.cancel(SYNC_DUE)
        if self.state is State.STABLE:
            self._answer(ticket, synced(self.protocol_type, self.protocol_name, member.assignment))
            return
        before, member.sync_ticket = member.sync_ticket, ticket
        self._answer(before, sync_refused(REBALANCE_IN_PROGRESS))
        if member_id == self.roster.leader and self._storing != self.generation:
            yield from self._share_out(member, assignment)

    def _share_out(self, leader: Member, assignment: Mapping[str, bytes]) -> Steps[None]:
        given: dict[str, bytes] = {}
        byte_count = 0
        for at, each in enumerate(self.roster, 1):
            part = given[each.member_id] = assignment.get(each.member_id, b"")
            byte_count += len(part)
            if at % MEMBERS_PER_STEP == 0:
                yield
        if not self._may_assign(byte_count):
            self._answer_sync(leader, sync_refused(MESSAGE_TOO_LARGE))
            return
        self._storing = self.generation
        yield from self._store(given, AssignmentStored(self.generation, given))

    def _may_assign(self, byte_count: int) -> bool:
        try:
            self._budget.admit(self.group_id, 0, byte_count, self._now.ms)
        except PeerError:
            return False
        return True

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None, now: Now) -> int:
        self._now = now
        code = self.generation_fault(member_id, generation, instance_id)
        if code != NONE:
            return code
        self._expect_heartbeat(member_id, self.roster[member_id].session_timeout_ms)
        return REBALANCE_IN_PROGRESS if self.state is State.PREPARING else NONE

    def leave(self, leaving: list[tuple[str, str | None]], ticket: Ticket, now: Now) -> list[Effect]:
        return self._happens(self._leave_all(leaving, ticket), now)

    def _leave_all(self, leaving: list[tuple[str, str | None]], ticket: Ticket) -> Steps[None]:
        if self.state is State.DEAD:
            self._answer(ticket, {"error_code": COORDINATOR_NOT_AVAILABLE, "members": []})
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
        is_told = bool(self.roster.members) or all(result["error_code"] != NONE for result in results)
        if is_told:
            self._answer(ticket, body)  # nothing is written now
            if self._line:
                yield  # the next one in line may be about as many
        effects_before = len(self._effects)
        if any(result["error_code"] == NONE for result in results):
            yield from self._rebalance_or_complete_join()
        if is_told:
            return
        stores = [effect for effect in self._effects[effects_before:] if isinstance(effect, Store)]
        if stores:
            stores[0].answers += (Answer(ticket, body),)
        else:
            self._answer(ticket, body)

    def touch(self, member_id: str, now: Now) -> None:
        """A commit of offsets is as good as a heartbeat."""
        self._now = now
        if member_id in self.roster and self.state in (State.STABLE, State.PREPARING):
            self._expect_heartbeat(member_id, self.roster[member_id].session_timeout_ms)

    def stored(self, what: Stored | None, code: int, now: Now) -> list[Effect]:
        """What a `Store` asked for is safe, or (code) could not be written."""
        if isinstance(what, AssignmentStored):
            return self._happens(self._assignment_stored(what, code), now)
        if isinstance(what, ReplacementStored):
            return self._happens(self._replacement_stored(what, code), now)
        return []

    # ── joining ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _has_room_for(self, member_id: str) -> bool:
        limit, member = self._settings.max_size, self.roster.get(member_id)
        if self.state is State.PREPARING:  # joins are counted: the last to come back to a group too large are left out
            return (member is not None and member.join_ticket is not None) or self.roster.joins_waiting < limit
        if self.state is State.EMPTY:
            return True
        return member is not None or len(self.roster) < limit

    def _size_fault(self, request: JoinRequest) -> int:
        """Whether the group, and all groups together, may remember what this member says."""
        known_id = request.member_id
        if not known_id and request.instance_id is not None:
            known_id = self.roster.id_of_instance(request.instance_id) or ""
        known = self.roster.get(known_id)
        added = request.byte_count - (0 if known is None else known.byte_count)
        is_pending = not request.member_id and request.instance_id is None and request.must_know_member_id
        try:
            if is_pending:
                self._budget.admit_pending(self.group_id, len(self.roster.pending), self._now.ms)
                added -= protocol_bytes(request.protocols)  # it says them again when it joins with its id
            self._budget.admit(self.group_id, self.roster.byte_count, added, self._now.ms)
        except PeerError as error:
            return error.code
        return NONE

    def _speaks(self, request: JoinRequest) -> bool:
        if self.state is State.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and self.roster.speak_any(
            name for name, _ in request.protocols
        )

    def _add(self, request: JoinRequest, member_id: str, ticket: Ticket) -> Steps[None]:
        if self.state is State.PREPARING and self._previous_state is State.EMPTY:
            self._newcomer = True
        if not self.roster.members:
            self.protocol_type = request.protocol_type
        self.roster.add(
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
        self._expect_heartbeat(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        yield from self._rebalance_or_complete_join()

    def _join_again(self, request: JoinRequest, ticket: Ticket) -> Steps[None]:
        code = self.identity_fault(request.member_id, request.instance_id)
        if code != NONE:
            self._answer(ticket, join_refused(code, request.member_id))
            return
        member = self.roster[request.member_id]
        is_same = member.protocols == request.protocols
        is_leader = self.roster.leader == member.member_id
        # A leader that joins a stable group wants a rebalance: what it shares out has changed, not what it says.
        if is_same and is_leader and self.state is State.COMPLETING:
            self._answer(
                self.roster.wait_for_join(member, ticket), join_refused(REBALANCE_IN_PROGRESS, member.member_id)
            )
            members = yield from self.members_told()
            self._answer(self.roster.take_join(member), self.joined(member, members))
        elif is_same and not is_leader and self.state in (State.COMPLETING, State.STABLE):
            self._answer(ticket, self.joined(member, []))
        else:
            self._update(member, request, ticket)
            yield from self._rebalance_or_complete_join()

    def _update(self, member: Member, request: JoinRequest, ticket: Ticket) -> None:
        self.roster.change_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        self._answer(self.roster.wait_for_join(member, ticket), join_refused(REBALANCE_IN_PROGRESS, member.member_id))

    def _join_static(self, request: JoinRequest, instance_id: str, ticket: Ticket) -> Steps[None]:
        old_id = self.roster.id_of_instance(instance_id)
        new_id = request.new_member_id()
        if old_id is None:
            yield from self._add(request, new_id, ticket)
            return
        member = self.roster[old_id]
        before = ReplacementStored(
            member,
            self.generation,
            new_id,
            old_id,
            self.roster.leader,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            request.may_skip_assignment,
        )
        self._replace(member, new_id)
        self._update(member, request, ticket)
        if self.state is State.STABLE and (yield from self.roster.chosen_protocol()) == self.protocol_name:
            yield from self._store(None, before)
        elif self.state is State.COMPLETING:  # the leader may be sharing out to the former self at this moment
            yield from self._prepare_rebalance()
        else:
            yield from self._rebalance_or_complete_join()

    def _replace(self, member: Member, new_id: str) -> None:
        old_id = member.member_id
        self._answer(self.roster.take_join(member), join_refused(FENCED_INSTANCE_ID, old_id))
        self._answer_sync(member, sync_refused(FENCED_INSTANCE_ID))
        self.deadlines.cancel((SESSION, old_id))
        self.roster.rename(member, new_id)
        member.is_new = False
        if old_id in self._sync_missing:
            self._sync_missing.remove(old_id)
            self._sync_missing.add(new_id)
        self._expect_heartbeat(new_id, member.session_timeout_ms)

    def _replacement_stored(self, what: ReplacementStored, code: int) -> Steps[None]:
        member = self.roster.get(what.new_id)
        if member is not what.member or self.state is not State.STABLE or self.generation != what.generation:
            return  # it has been replaced again, or a rebalance has begun, which answers its join
        if code == NONE:
            skips = what.may_skip_assignment and self.roster.leader == what.new_id
            members = (yield from self.members_told()) if skips else []
            body = dict(self.joined(member, members))
            # An older leader is not told that it leads: it would share out, though nobody waits for that.
            body |= {"skip_assignment": skips} if what.may_skip_assignment else {"leader": what.old_leader or ""}
            self._answer(self.roster.take_join(member), body)
            self._expect_heartbeat(what.new_id, member.session_timeout_ms)  # it may have run out while it waited
            return
        self._answer(self.roster.take_join(member), join_refused(code))
        self.roster.change_protocols(member, what.old_protocols)
        member.rebalance_timeout_ms = what.old_rebalance_timeout_ms
        member.session_timeout_ms = what.old_session_timeout_ms
        self._replace(member, what.old_id)

    def _leave(self, member_id: str, instance_id: str | None) -> int:
        if not member_id:  # by an administrator, who knows the instance only
            found = None if instance_id is None else self.roster.id_of_instance(instance_id)
            if found is None:
                return UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id not in self.roster.pending:
            code = self.identity_fault(member_id, instance_id)
            if code != NONE:
                return code
        self._forget(member_id, UNKNOWN_MEMBER_ID)
        return NONE
