"""The part of a broker's settings that is about groups, their offsets, and transactions.

`BrokerSettings` inherits these fields, and these inherit the log's: that is how a dataclass takes over the fields of
another, and all that is derived from them (keys, flags, the reference) wants them in one flat object. It is a chain,
because classes with slots cannot be joined side by side.
"""

from dataclasses import dataclass

from headrace.core.settings.log import LogSettings
from headrace.core.settings.types import Kind, setting

_STRING, _LIST = Kind.STRING, Kind.LIST


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupAndLogSettings(LogSettings):
    # Groups of the classic protocol
    group_min_session_timeout_ms: int = setting(
        6_000, "group.min.session.timeout.ms", "The shortest session timeout that a member may ask for."
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, "group.max.session.timeout.ms", "The longest session timeout that a member may ask for."
    )
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "group.initial.rebalance.delay.ms", "How long an empty group waits for more members to join."
    )
    group_max_size: int = setting((1 << 31) - 1, "group.max.size", "The most members of a group.", low=1)

    group_pending_members_max: int = setting(
        10_000,
        "headrace.group.pending.members.max",
        "Members of a group that were given an id and have not joined with it; more are refused.",
        low=1,
    )
    group_pending_members_total_max: int = setting(
        100_000, "headrace.group.pending.members.total.max", "The same, for all groups together.", low=1
    )

    # Groups of both protocols
    group_member_metadata_bytes_max: int = setting(
        1 << 20,
        "headrace.group.member.metadata.bytes.max",
        "Size of a member's metadata (its ids and its subscription); a larger one is refused.",
        low=1,
    )
    group_metadata_bytes_max: int = setting(
        16 << 20,
        "headrace.group.metadata.bytes.max",
        "Size of the metadata of all members of a group; also of what its leader assigns.",
        low=1,
    )
    group_metadata_bytes_total_max: int = setting(
        128 << 20, "headrace.group.metadata.bytes.total.max", "The same, for all groups together.", Kind.LONG, low=1
    )

    # Groups of the consumer protocol (KIP-848)
    group_consumer_heartbeat_interval_ms: int = setting(
        5_000, "group.consumer.heartbeat.interval.ms", "How often members send a heartbeat.", low=1
    )
    group_consumer_session_timeout_ms: int = setting(
        45_000, "group.consumer.session.timeout.ms", "Silence after which a member is removed.", low=1
    )
    group_consumer_assignment_interval_ms: int = setting(
        1_000, "group.consumer.assignment.interval.ms", "The least time between two assignments of a group.", low=0
    )
    group_consumer_max_size: int = setting(
        (1 << 31) - 1, "group.consumer.max.size", "The most members of a consumer group.", low=1
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"), "group.consumer.assignors", "The assignors offered; the first is the default.", _LIST
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        "group.consumer.migration.policy",
        "Which way groups may move between the protocols.",
        _STRING,
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )

    # Committed offsets
    offsets_retention_minutes: int = setting(
        10_080, "offsets.retention.minutes", "How long the offsets of an empty group are kept.", low=1
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, "offsets.retention.check.interval.ms", "How often expired offsets are looked for.", low=1
    )
    offset_metadata_max_bytes: int = setting(
        4_096, "offset.metadata.max.bytes", "The longest metadata of a committed offset."
    )
    offsets_topic_num_partitions: int = setting(
        50, "offsets.topic.num.partitions", "Partitions of __consumer_offsets; not to be changed later.", low=1
    )
    offsets_topic_segment_bytes: int = setting(
        100 << 20, "offsets.topic.segment.bytes", "Segment size of __consumer_offsets.", low=1
    )

    # Transactions
    transaction_max_timeout_ms: int = setting(
        900_000, "transaction.max.timeout.ms", "The longest timeout that a transactional producer may ask for.", low=1
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000,
        "transactional.id.expiration.ms",
        "Time without use after which a transactional id is forgotten.",
        low=1,
    )
    transactional_ids_max: int = setting(
        100_000,
        "headrace.transactional.ids.max",
        "Transactional ids that are remembered; a new one beyond that is refused.",
        low=1,
    )
    transaction_abort_check_interval_ms: int = setting(
        10_000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "How often timed-out transactions are looked for.",
        low=1,
    )
    transaction_expire_check_interval_ms: int = setting(
        3_600_000,
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "How often expired transactional ids are looked for.",
        low=1,
    )
    transaction_state_log_num_partitions: int = setting(
        50, "transaction.state.log.num.partitions", "Partitions of __transaction_state; not to be changed later.", low=1
    )
    transaction_state_log_segment_bytes: int = setting(
        100 << 20, "transaction.state.log.segment.bytes", "Segment size of __transaction_state.", low=1
    )
