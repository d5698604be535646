"""A classic group as what a consumer group can be made of, and the one that a consumer group turns into."""

from headrace.coordinator.classic.group import ClassicGroup
from headrace.coordinator.classic.members import JoinProtocol, Member, Roster
from headrace.coordinator.consumer.requests import ClassicSeed, ClassicSeedMember
from headrace.coordinator.group_records import GroupMetadata
from headrace.core.steps import finish
from headrace.protocol.consumer_protocol import CONSUMER


def classic_metadata(seed: ClassicSeed, wall_ms: int) -> GroupMetadata:
    """As it is written down: under the protocol that the members would choose, led by the first of them."""
    roster = Roster()
    for each in seed.members:
        roster.add(
            Member(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                session_timeout_ms=each.session_timeout_ms,
                protocols=tuple(JoinProtocol(*protocol) for protocol in each.protocols),
                assignment=each.assignment,
            )
        )
    protocol = finish(roster.chosen_protocol())
    return GroupMetadata(
        protocol_type=CONSUMER,
        generation=seed.generation,
        protocol=protocol,
        leader=roster.leader,
        current_state_timestamp_ms=wall_ms,
        members=tuple(each.written(protocol, each.assignment) for each in roster.members.values()),
    )


def make_classic(group: ClassicGroup, seed: ClassicSeed, metadata: GroupMetadata) -> ClassicGroup:
    """The record keeps one protocol of each member; as long as this broker runs, it knows them all."""
    group.facts.restore(metadata)
    for each in seed.members:
        protocols = tuple(JoinProtocol(*protocol) for protocol in each.protocols)
        group.facts.roster.change_protocols(group.facts.roster[each.member_id], protocols)
    return group


def seed_of(member: Member) -> ClassicSeedMember:
    return ClassicSeedMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        tuple((name, metadata) for name, metadata in member.protocols),
        member.assignment,
    )
