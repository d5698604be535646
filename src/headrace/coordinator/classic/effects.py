"""What a classic group asks of the loop around it: answers to give, and what to write down before it goes on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.coordinator.classic.members import JoinProtocol, Member, Ticket
from headrace.coordinator.group_records import GroupMetadata
from headrace.coordinator.journal import Pair
from headrace.protocol.error_codes import NONE

Body = Mapping[str, object]


class Answer(NamedTuple):
    ticket: Ticket
    body: Body


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """The leader's word on who does what, in this generation."""

    generation: int
    assignment: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ReplacementStored:
    """A static member came back under a new id while nothing else changed; and what it was before."""

    member: Member
    generation: int
    new_id: str
    old_id: str
    old_leader: str | None
    old_protocols: tuple[JoinProtocol, ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    may_skip_assignment: bool


@dataclass(frozen=True, slots=True)
class CreationStored:
    """A group that nobody knew before."""


Stored = AssignmentStored | ReplacementStored | CreationStored


@dataclass(slots=True)
class Store:
    """Write the group down like this, then tell it (`stored`), then give these answers."""

    metadata: GroupMetadata
    then: Stored | None = None
    answers: tuple[Answer, ...] = ()
    before: tuple[Pair, ...] = ()  # what else is to be written with it, in front of it
    encoded_members: list[bytes] | None = None  # those of the metadata, where that was done in steps


Effect = Answer | Store


def join_refused(code: int, member_id: str = "") -> Body:
    return {"error_code": code, "member_id": member_id, "leader": "", "protocol_name": None, "members": []}


def sync_refused(code: int) -> Body:
    return {"error_code": code, "assignment": b""}


def synced(protocol_type: str | None, protocol_name: str | None, assignment: bytes) -> Body:
    return {
        "error_code": NONE,
        "protocol_type": protocol_type,
        "protocol_name": protocol_name,
        "assignment": assignment,
    }
