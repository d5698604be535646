"""Members of the classic protocol in a consumer group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

They have no say in who gets what: the broker assigns, and each is told in SyncGroup, as if a leader had decided. A
generation is the member's epoch. When there is something new for a member, its heartbeat is answered with
REBALANCE_IN_PROGRESS; it gives up what it must, joins again, and so goes one step further. Between being told and
joining, and between joining and syncing, it has its rebalance timeout.
"""

from collections.abc import Iterable

from headrace.coordinator.classic.effects import join_refused
from headrace.coordinator.classic.members import JoinRequest, SyncRequest
from headrace.coordinator.consumer.faults import check_static, unknown_member
from headrace.coordinator.consumer.member import ClassicMember, ConsumerGroupMember, MemberState, Subscription
from headrace.coordinator.consumer.migration import may_downgrade, seed
from headrace.coordinator.consumer.requests import Decision
from headrace.coordinator.consumer.state import JOIN, SESSION, SYNC, ConsumerGroup
from headrace.coordinator.deadlines import Now
from headrace.coordinator.topic_view import by_name, by_topic_id
from headrace.core.errors import PeerError
from headrace.protocol.consumer_protocol import (
    CONSUMER,
    EmbeddedSubscription,
    read_subscription,
    write_assignment,
)
from headrace.protocol.error_codes import (
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)


def join(group: ConsumerGroup, request: JoinRequest, now: Now) -> Decision:
    try:
        return _join(group, request, now)
    except PeerError:
        group.abandon()
        raise


def _join(group: ConsumerGroup, request: JoinRequest, now: Now) -> Decision:
    is_unknown = not request.member_id
    member_id = request.member_id or request.fresh_id
    if group.settings.consumer_migration_policy == "disabled":
        raise PeerError(
            INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration is"
            " disabled.",
        )
    group.refuse_if_full(member_id)
    embedded = _subscription(group, request, member_id)
    if is_unknown and request.instance_id is None and request.must_know_member_id:
        return group.decided(join_refused(MEMBER_ID_REQUIRED, member_id))
    static = group.table.static_member(request.instance_id)
    former = static if request.instance_id is not None else group.table.members.get(member_id)
    if request.instance_id is not None and not is_unknown:
        former = check_static(static, member_id, request.instance_id)
    is_last_other = _is_last_other(group, static)
    before = former or ConsumerGroupMember(member_id=member_id)
    if before.member_id != member_id or (static is not None and is_unknown):
        before = group.replace_member(before, member_id)
    subscription = Subscription(
        instance_id=request.instance_id or before.subscription.instance_id,
        rack_id=embedded.rack_id or before.subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=frozenset(embedded.topics),
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        server_assignor=before.subscription.server_assignor,
        classic=ClassicMember(request.session_timeout_ms, tuple((name, data) for name, data in request.protocols)),
    )
    changed = (before.subscription.topics, before.subscription.pattern) != (subscription.topics, "")
    group.subscribe(before, subscription, now)
    must_rebalance = group.table.epochs.target < group.table.epochs.group
    if not is_last_other:
        group.update_target(now)
    if not (is_last_other and must_rebalance):
        owned = by_topic_id(embedded.owned, group.topic_view)
        group.advance(member_id, owned, now, subscription_changed=changed)
    answer = {
        "error_code": NONE,
        "member_id": member_id,
        "generation_id": group.table.members[member_id].epoch,
        "protocol_type": CONSUMER,
        "protocol_name": request.protocols[0][0],
        "leader": "",
        "skip_assignment": False,
        "members": [],
    }
    if is_last_other:
        group.become_classic(seed(group.table, frozenset(), group.topic_view, must_rebalance=must_rebalance))
        return group.decided(answer)
    group.deadlines.cancel((JOIN, member_id))
    group.deadlines.set((SESSION, member_id), now.ms + request.session_timeout_ms)
    group.deadlines.set((SYNC, member_id), now.ms + request.rebalance_timeout_ms)
    return group.decided(answer)


def sync(group: ConsumerGroup, request: SyncRequest, now: Now) -> Decision:
    member_id, protocol_type, protocol_name = request.member_id, request.protocol_type, request.protocol_name
    member, classic = _member(group, member_id, request.generation, request.instance_id)
    chosen, metadata = classic.protocols[0]
    if (protocol_type not in (None, CONSUMER)) or (protocol_name not in (None, chosen)):
        raise PeerError(
            INCONSISTENT_GROUP_PROTOCOL,
            f"{member_id}: syncs as {protocol_type}/{protocol_name}, but joined as {CONSUMER}/{chosen}",
        )
    if group.table.epochs.target > member.epoch and member.state != MemberState.UNREVOKED_PARTITIONS:
        _expect_join(group, member, now)
        raise PeerError(
            REBALANCE_IN_PROGRESS,
            f"A new rebalance is triggered in group {group.group_id} and member {member_id} should rejoin to catch up.",
        )
    group.deadlines.cancel((SYNC, member_id))
    group.deadlines.set((SESSION, member_id), now.ms + classic.session_timeout_ms)
    version = read_subscription(metadata).version
    return group.decided(
        {
            "error_code": NONE,
            "protocol_type": protocol_type,
            "protocol_name": protocol_name,
            "assignment": write_assignment(by_name(member.current.assigned, group.topic_view), version),
        }
    )


def heartbeat(group: ConsumerGroup, member_id: str, generation: int, instance_id: str | None, now: Now) -> int:
    """The code of the answer. Raises PeerError if it is not a member, or not of this generation."""
    member, classic = _member(group, member_id, generation, instance_id)
    group.deadlines.set((SESSION, member_id), now.ms + classic.session_timeout_ms)
    can_go_on = (
        member.epoch < group.table.epochs.target
        or member.state == MemberState.UNREVOKED_PARTITIONS
        or (member.state == MemberState.UNRELEASED_PARTITIONS and not group.table.is_waiting_for_others(member))
    )
    if not can_go_on:
        return NONE
    _expect_join(group, member, now)
    return REBALANCE_IN_PROGRESS


def leave(group: ConsumerGroup, leaving: Iterable[tuple[str, str | None]]) -> Decision:
    """LeaveGroup is for any member: an administrator removes members of either protocol with it."""
    results: list[dict[str, object]] = []
    gone: dict[str, ConsumerGroupMember] = {}
    for member_id, instance_id in leaving:
        code = NONE
        try:
            member = _leaving(group, member_id, instance_id)
            gone[member.member_id] = member
        except PeerError as error:
            code = error.code
        results.append({"member_id": member_id, "group_instance_id": instance_id, "error_code": code})
    if gone:
        group.remove(list(gone.values()))
    return group.decided({"error_code": NONE, "members": results})


def _leaving(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    if instance_id is None:
        if member_id not in group.table.members:
            raise unknown_member(group.group_id, member_id)
        return group.table.members[member_id]
    static = group.table.static_member(instance_id)
    if static is not None and not member_id:
        return static
    return check_static(static, member_id, instance_id)


def _member(
    group: ConsumerGroup, member_id: str, generation: int, instance_id: str | None
) -> tuple[ConsumerGroupMember, ClassicMember]:
    if instance_id is None:
        if member_id not in group.table.members:
            raise unknown_member(group.group_id, member_id)
        member = group.table.members[member_id]
    else:
        member = check_static(group.table.static_member(instance_id), member_id, instance_id)
    classic = member.subscription.classic
    if classic is None:
        raise PeerError(UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if member.epoch != generation:
        raise PeerError(
            ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member"
            f" {member_id}.",
        )
    return member, classic


def _subscription(group: ConsumerGroup, request: JoinRequest, member_id: str) -> EmbeddedSubscription:
    """What it subscribes to, if all classic members can speak one of its protocols."""
    if request.protocol_type == CONSUMER and group.table.counts.speak_any(name for name, _ in request.protocols):
        try:
            return read_subscription(request.protocols[0][1])
        except ValueError:
            pass
    raise PeerError(INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")


def _is_last_other(group: ConsumerGroup, static: ConsumerGroupMember | None) -> bool:
    """Whether all would speak the classic protocol if this member did, and may then be a classic group."""
    count = len(group.table.members)
    return (
        static is not None
        and not static.is_classic
        and group.table.counts.classic == count - 1
        and count <= group.settings.max_size
        and may_downgrade(group.settings)
    )


def _expect_join(group: ConsumerGroup, member: ConsumerGroupMember, now: Now) -> None:
    key = (JOIN, member.member_id)
    if key not in group.deadlines:
        group.deadlines.set(key, now.ms + member.subscription.rebalance_timeout_ms)
