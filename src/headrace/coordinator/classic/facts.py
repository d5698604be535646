"""What is so about a classic group at one moment: who may speak, what is said of it, what is written down of it.

Nothing here changes the group, except `restore`, which makes it what a record says. The changes are made by
`state`, on behalf of the requests in `group`.
"""

from collections.abc import Mapping
from enum import StrEnum

from headrace.coordinator.classic.effects import Body
from headrace.coordinator.classic.members import JoinProtocol, Member, Roster, SyncRequest
from headrace.coordinator.classic.steps import MEMBERS_PER_STEP, Steps
from headrace.coordinator.deadlines import Now
from headrace.coordinator.group_records import GroupMetadata, MemberMetadata
from headrace.core.steps import finish
from headrace.protocol.consumer_protocol import CONSUMER, topics_of
from headrace.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    NON_EMPTY_GROUP,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupFacts:
    def __init__(self, group_id: str, now: Now) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = now.wall_ms  # -1 when an old record did not say
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self.roster = Roster()

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────

    def identity_fault(self, member_id: str, instance_id: str | None) -> int:
        """Whether this is who it says, and belongs here."""
        if self.state is GroupState.DEAD:
            return COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            known = self.roster.id_of_instance(instance_id)
            if known is None:
                return UNKNOWN_MEMBER_ID
            if known != member_id:
                return FENCED_INSTANCE_ID
        return NONE if member_id in self.roster else UNKNOWN_MEMBER_ID

    def generation_fault(self, member_id: str, generation: int, instance_id: str | None) -> int:
        code = self.identity_fault(member_id, instance_id)
        return ILLEGAL_GENERATION if code == NONE and generation != self.generation else code

    def sync_fault(self, request: SyncRequest) -> int:
        code = self.generation_fault(request.member_id, request.generation, request.instance_id)
        if code != NONE:
            return code
        protocols = ((request.protocol_type, self.protocol_type), (request.protocol_name, self.protocol_name))
        for said, known in protocols:
            if said is not None and known is not None and said != known:
                return INCONSISTENT_GROUP_PROTOCOL
        return REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else NONE

    def commit_fault(self, member_id: str, generation: int, instance_id: str | None, *, in_transaction: bool) -> int:
        """Whether offsets may be committed in this member's name.

        An empty group takes them from anyone who claims no generation. A transaction may leave out who it is, as
        its older clients do, and may commit while the group waits for its leader.
        """
        if self.state is GroupState.DEAD:
            return COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.is_empty:
            return NONE
        if generation >= 0 or member_id or instance_id is not None:
            code = self.generation_fault(member_id, generation, instance_id)
            if code != NONE:
                return code
        elif not in_transaction and not self.is_empty:
            return UNKNOWN_MEMBER_ID
        return REBALANCE_IN_PROGRESS if self.state is GroupState.COMPLETING and not in_transaction else NONE

    def delete_fault(self) -> int:
        if self.state is GroupState.DEAD:
            return GROUP_ID_NOT_FOUND
        return NONE if self.is_empty else NON_EMPTY_GROUP

    # ── what is said of it ───────────────────────────────────────────────────────────────────────────────────────

    def subscribes_to(self, topic: str) -> bool:
        return self.is_of_consumers if self.subscribed_topics is None else topic in self.subscribed_topics

    def topics_subscribed(self, protocol_name: str | None) -> Steps[frozenset[str] | None]:
        """As the members say under this protocol."""
        if not self.is_of_consumers:
            return None
        said: set[bytes] = set()  # most members say the same
        topics: set[str] = set()
        for at, each in enumerate(self.roster, 1):
            metadata = each.metadata(protocol_name)
            if metadata not in said:
                said.add(metadata)
                try:
                    topics.update(topics_of(metadata))
                except ValueError:
                    return None
            if at % MEMBERS_PER_STEP == 0:
                yield
        return frozenset(topics)

    def members_told(self) -> Steps[list[Body]]:
        """Who is there, for the leader to share out."""
        members: list[Body] = []
        for at, each in enumerate(self.roster, 1):
            metadata = each.metadata(self.protocol_name)
            told = {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": metadata}
            members.append(told)
            if at % MEMBERS_PER_STEP == 0:
                yield
        return members

    def joined(self, member: Member, members: list[Body]) -> Body:
        """The answer to a join; the members for the leader, if it is to share out."""
        return {
            "error_code": NONE,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name,
            "leader": self.roster.leader,
            "skip_assignment": False,
            "member_id": member.member_id,
            "members": members,
        }

    def described(self) -> Body:
        """For DescribeGroups. What members say and which protocol they chose counts in a stable group only."""
        name = self.protocol_name if self.state is GroupState.STABLE else None
        return {
            "error_code": NONE,
            "group_id": self.group_id,
            "group_state": str(self.state),
            "protocol_type": self.protocol_type or "",
            "protocol_data": name or "",
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.instance_id,
                    "client_id": each.client_id,
                    "client_host": each.client_host,
                    "member_metadata": b"" if name is None else each.shown_metadata(name),
                    "member_assignment": each.assignment,
                }
                for each in self.roster
            ],
        }

    # ── what is written down ─────────────────────────────────────────────────────────────────────────────────────

    def written(self, assignment: Mapping[str, bytes] | None) -> Steps[GroupMetadata]:
        """With this assignment, or (None) with the one that they have."""
        members: list[MemberMetadata] = []
        for at, each in enumerate(self.roster, 1):
            given = each.assignment if assignment is None else assignment.get(each.member_id, b"")
            members.append(each.written(self.protocol_name, given))
            if at % MEMBERS_PER_STEP == 0:
                yield
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.roster.leader,
            current_state_timestamp_ms=self.state_since_ms,
            members=tuple(members),
        )

    def restore(self, metadata: GroupMetadata) -> None:
        """A group with members was stable when it was written down, and is again."""
        self.state = GroupState.STABLE if metadata.members else GroupState.EMPTY
        self.state_since_ms = metadata.current_state_timestamp_ms
        self.generation = metadata.generation
        self.protocol_type = metadata.protocol_type or None
        self.protocol_name = metadata.protocol
        self.roster = Roster()
        self.roster.leader = metadata.leader
        for each in metadata.members:
            said = JoinProtocol(metadata.protocol or "", each.subscription)
            rebalance_timeout_ms = each.rebalance_timeout_ms  # which the oldest records do not have
            self.roster.add(
                Member(
                    member_id=each.member_id,
                    instance_id=each.group_instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    rebalance_timeout_ms=each.session_timeout_ms
                    if rebalance_timeout_ms == -1
                    else rebalance_timeout_ms,
                    session_timeout_ms=each.session_timeout_ms,
                    protocols=(said,),
                    assignment=each.assignment,
                )
            )
        self.roster.assignment_bytes = sum(len(each.assignment) for each in metadata.members)
        self.subscribed_topics = finish(self.topics_subscribed(self.protocol_name))
