"""What the operator may decide about groups, under Kafka's names. Kept apart from the broker's settings, so that the
coordinator can be made and tested without a broker."""

from dataclasses import dataclass

from headrace.core.errors import OperatorError

NEVER_LIMITED = 2**31 - 1
MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
ASSIGNORS = ("uniform", "range")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    max_size: int = NEVER_LIMITED  # group.max.size
    pending_members_max: int = 10_000  # headrace.group.pending.members.max
    pending_members_total_max: int = 100_000  # headrace.group.pending.members.total.max
    member_metadata_bytes_max: int = 1 << 20  # headrace.group.member.metadata.bytes.max
    group_metadata_bytes_max: int = 16 << 20  # headrace.group.metadata.bytes.max
    total_metadata_bytes_max: int = 128 << 20  # headrace.group.metadata.bytes.total.max
    offsets_retention_ms: int = 10_080 * 60_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    offset_metadata_max_bytes: int = 4_096  # offset.metadata.max.bytes
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_min_heartbeat_interval_ms: int = 5_000  # group.consumer.min.heartbeat.interval.ms
    consumer_max_heartbeat_interval_ms: int = 15_000  # group.consumer.max.heartbeat.interval.ms
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_min_session_timeout_ms: int = 45_000  # group.consumer.min.session.timeout.ms
    consumer_max_session_timeout_ms: int = 60_000  # group.consumer.max.session.timeout.ms
    consumer_assignment_interval_ms: int = 1_000  # group.consumer.assignment.interval.ms
    consumer_max_size: int = NEVER_LIMITED  # group.consumer.max.size
    consumer_assignors: tuple[str, ...] = ASSIGNORS  # group.consumer.assignors
    consumer_migration_policy: str = "bidirectional"  # group.consumer.migration.policy

    def __post_init__(self) -> None:
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise OperatorError(
                f"group.min.session.timeout.ms={self.min_session_timeout_ms} is above group.max.session.timeout.ms="
                f"{self.max_session_timeout_ms}; lower the first or raise the second"
            )
        if self.consumer_migration_policy not in MIGRATION_POLICIES:
            raise OperatorError(
                f"group.consumer.migration.policy={self.consumer_migration_policy} is none of"
                f" {', '.join(MIGRATION_POLICIES)}; choose one of these"
            )
        unknown = [name for name in self.consumer_assignors if name not in ASSIGNORS]
        if unknown or not self.consumer_assignors:
            raise OperatorError(
                f"group.consumer.assignors={','.join(self.consumer_assignors)} must name some of {', '.join(ASSIGNORS)}"
            )
