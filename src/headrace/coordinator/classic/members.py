"""The members of a classic group: who they are, which protocols they can all speak, who leads them.

A ticket is a request that waits for its answer. It is kept here and handed back; nothing here ever calls it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.coordinator.classic.steps import MEMBERS_PER_STEP, Steps
from headrace.coordinator.group_records import MemberMetadata
from headrace.core.errors import InvariantError
from headrace.protocol.consumer_protocol import CONSUMER

Ticket = Callable[[Mapping[str, object]], None]


class JoinProtocol(NamedTuple):
    """A way of sharing out the work that a member can follow, and what it says for itself under it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str = CONSUMER
    protocols: tuple[JoinProtocol, ...] = ()
    fresh_id: str = ""  # random; a part of the member id, if a new one is given
    must_know_member_id: bool = True  # v4 on: a new member is given an id first, and joins with it
    may_skip_assignment: bool = True  # v9 on: a leader can be told that there is nothing to share out

    @property
    def byte_count(self) -> int:
        """What a member that joins so costs to remember."""
        ids = len(self.client_id) + len(self.instance_id or "") + len(self.member_id or self.fresh_id)
        return ids + protocol_bytes(self.protocols)

    @property
    def names(self) -> tuple[str | None, ...]:
        """What is written down of it in records that have no room for long strings."""
        ids = (self.group_id, self.member_id or self.new_member_id(), self.instance_id, self.client_id)
        return (*ids, self.protocol_type, *[name for name, _ in self.protocols])

    def new_member_id(self) -> str:
        return f"{self.client_id if self.instance_id is None else self.instance_id}-{self.fresh_id}"


@dataclass(frozen=True, slots=True)
class SyncRequest:
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignment: Mapping[str, bytes]  # of all members, if it is the leader's


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False  # not yet answered: it cannot send heartbeats, since it does not know its id
    join_ticket: Ticket | None = field(default=None, repr=False)
    sync_ticket: Ticket | None = field(default=None, repr=False)

    @property
    def byte_count(self) -> int:
        ids = len(self.client_id) + len(self.instance_id or "") + len(self.member_id)
        return ids + protocol_bytes(self.protocols)

    @property
    def is_waiting(self) -> bool:
        """A member that waits for us cannot be blamed for its silence, unless it has never been answered at all."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def written(self, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
        """As it is written down: under one protocol, with this assignment."""
        return MemberMetadata(
            member_id=self.member_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
            group_instance_id=self.instance_id,
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise InvariantError(f"{self.member_id}: does not speak {protocol_name}, which its group has chosen")

    def shown_metadata(self, protocol_name: str) -> bytes:
        """The same for somebody who only looks. While a large group begins a rebalance since this member speaks other
        protocols now, the one that was chosen before may not be among them."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")


def protocol_bytes(protocols: Iterable[JoinProtocol]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class Roster:
    """Members in the order in which they came, with the counts that are needed at each join."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.pending: set[str] = set()  # ids that were given out; their owners are yet to join with them
        self.byte_count = 0  # of all that members, also pending ones, say of themselves
        self.assignment_bytes = 0
        self._leader: str | None = None
        self._leader_left = False  # the next one is looked for when it is asked for: many may leave before that
        self.joins_waiting = 0
        self._by_instance: dict[str, str] = {}
        self._speakers: Counter[str] = Counter()  # members by the name of a protocol

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self.members.values()))  # who walks over it may remove

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    def __getitem__(self, member_id: str) -> Member:
        return self.members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self.members.get(member_id)

    def id_of_instance(self, instance_id: str) -> str | None:
        return self._by_instance.get(instance_id)

    @property
    def leader(self) -> str | None:
        if self._leader_left:
            self._leader_left = False
            self._leader = next(iter(self.members), None)
        return self._leader

    @leader.setter
    def leader(self, member_id: str | None) -> None:
        self._leader_left = False
        self._leader = member_id

    @property
    def all_joined(self) -> bool:
        return self.joins_waiting == len(self.members) and not self.pending

    def rebalance_timeout_ms(self) -> Steps[int]:
        """The largest of theirs."""
        longest_ms = 0
        for at, member in enumerate(self.members.values(), 1):
            longest_ms = max(longest_ms, member.rebalance_timeout_ms)
            if at % MEMBERS_PER_STEP == 0:
                yield
        return longest_ms

    def add_pending(self, member_id: str) -> None:
        self.pending.add(member_id)
        self.byte_count += len(member_id)

    def _end_pending(self, member_id: str) -> None:
        if member_id in self.pending:
            self.pending.remove(member_id)
            self.byte_count -= len(member_id)

    def add(self, member: Member) -> None:
        if member.instance_id is not None:
            if member.instance_id in self._by_instance:
                raise InvariantError(f"{member.instance_id}: is a member already; it must be replaced, not added")
            self._by_instance[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self._speakers.update({name for name, _ in member.protocols})
        self.byte_count += member.byte_count
        self.joins_waiting += member.join_ticket is not None
        self._end_pending(member.member_id)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        """Its tickets must have been taken before."""
        self._end_pending(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.byte_count -= member.byte_count
        self._speakers.subtract({name for name, _ in member.protocols})
        self.joins_waiting -= member.join_ticket is not None
        if member.instance_id is not None and self._by_instance.get(member.instance_id) == member_id:
            del self._by_instance[member.instance_id]
        if self._leader == member_id:
            self._leader_left = True

    def rename(self, member: Member, new_id: str) -> None:
        """A static member comes back under another id: its place, its assignment and its leadership stay."""
        old_id = member.member_id
        member.member_id = new_id
        self.byte_count += len(new_id) - len(old_id)
        self.members = {each.member_id: each for each in self.members.values()}
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id

    def change_protocols(self, member: Member, protocols: tuple[JoinProtocol, ...]) -> None:
        self._speakers.subtract({name for name, _ in member.protocols})
        self._speakers.update({name for name, _ in protocols})
        self.byte_count += protocol_bytes(protocols) - protocol_bytes(member.protocols)
        member.protocols = protocols

    def wait_for_join(self, member: Member, ticket: Ticket) -> Ticket | None:
        """The ticket that waited before, if any: a client that lost patience has asked again."""
        before = self.take_join(member)
        member.join_ticket = ticket
        self.joins_waiting += 1
        return before

    def take_join(self, member: Member) -> Ticket | None:
        ticket, member.join_ticket = member.join_ticket, None
        self.joins_waiting -= ticket is not None
        return ticket

    def elect(self) -> bool:
        """Whether someone who has joined leads; one who has not must make room."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_ticket is not None:
            return True
        joined = next((member.member_id for member in self.members.values() if member.join_ticket is not None), None)
        if joined is not None:
            self.leader = joined
        return joined is not None

    def speak_any(self, names: Iterable[str]) -> bool:
        return any(self._speakers[name] == len(self.members) for name in names)

    def chosen_protocol(self) -> Steps[str]:
        """Each member votes for the first of its own that all can speak; most votes win, the first named in a tie."""
        votes: Counter[str] = Counter()
        for at, member in enumerate(self.members.values(), 1):
            votes[next(name for name, _ in member.protocols if self._speakers[name] == len(self.members))] += 1
            if at % MEMBERS_PER_STEP == 0:
                yield
        return votes.most_common(1)[0][0]
