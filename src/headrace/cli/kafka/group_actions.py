"""What `kafka-consumer-groups.sh` does: one function for each of its actions, in Kafka's words."""

import sys
from collections.abc import Callable, Iterable

from headrace.cli.kafka import group_reset, group_tables
from headrace.cli.kafka.options import GivenOptions
from headrace.cli.kafka.tool import ToolError, UsageError
from headrace.client.cluster import ClusterClient
from headrace.client.errors import ClientError, KafkaError
from headrace.client.group_admin import delete_group
from headrace.client.groups import GroupDetails, committed_offsets, describe_group, list_groups
from headrace.client.offset_commit import commit_offsets
from headrace.client.offsets import LATEST, PartitionName, leaders, offsets_at
from headrace.protocol.api_keys import OFFSET_DELETE
from headrace.protocol.error_codes import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)

STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
_PARTITION_LEVEL = frozenset({UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, GROUP_SUBSCRIBED_TO_TOPIC})

Action = Callable[[ClusterClient, GivenOptions], int]


def guarded(action: Action, cluster: ClusterClient, given: GivenOptions) -> int:
    """Failures in the words of Kafka's tool, which it writes to stdout."""
    try:
        return action(cluster, given)
    except UsageError:
        raise
    except KafkaError as error:
        text = f"\nError: Executing consumer group command failed due to {error.java}"
        raise ToolError(text, on_stdout=True) from error
    except (ToolError, ClientError) as error:
        text = f"\nError: Executing consumer group command failed due to {error}"
        raise ToolError(text, on_stdout=True) from error


def list_them(cluster: ClusterClient, given: GivenOptions) -> int:
    if not given.has("state") and not given.has("type"):
        for each in list_groups(cluster):
            print(each.group)
        return 0
    states = _chosen(given.one("state"), STATES, "state", "states")
    types = [name.lower() for name in _chosen(given.one("type"), ("Classic", "Consumer"), "types", "types")]
    found = list_groups(cluster, states, types)
    sys.stdout.write(group_tables.list_table(found, types=given.has("type"), states=given.has("state")))
    return 0


def _chosen(text: str | None, known: Iterable[str], singular: str, plural: str) -> list[str]:
    if not text:
        return []
    by_name = {name.lower(): name for name in known}
    parts = [part.strip().lower() for part in text.split(",")]
    if any(part not in by_name for part in parts):
        raise UsageError(f"Invalid {singular} list '{text}'. Valid {plural} are: {', '.join(by_name.values())}")
    return [by_name[part] for part in parts]


def describe(cluster: ClusterClient, given: GivenOptions) -> int:
    verbose = given.has("verbose")
    for facts in [describe_group(cluster, group) for group in _groups(cluster, given)]:
        if given.has("members"):
            _say_state(facts)
            sys.stdout.write(group_tables.member_table(facts, verbose))
        elif given.has("state"):
            _say_state(facts)
            sys.stdout.write(group_tables.state_table(facts, verbose))
        else:
            committed = committed_offsets(cluster, facts.group)
            places = [place for place, _ in group_tables.partitions_of(facts, committed)]
            rows = group_tables.offset_rows(facts, committed, _ends(cluster, places))
            _say_state(facts)
            if rows:
                sys.stdout.write(group_tables.offset_table(rows, verbose))
    return 0


def _groups(cluster: ClusterClient, given: GivenOptions) -> list[str]:
    if given.has("all-groups"):
        return [each.group for each in list_groups(cluster)]
    return sorted(set(given.all("group")))


def _say_state(facts: GroupDetails) -> None:
    sys.stdout.flush()
    if facts.state == "Empty":
        print(f"\nConsumer group '{facts.group}' has no active members.", file=sys.stderr)
    elif facts.state in _REBALANCING:
        print(f"\nWarning: Consumer group '{facts.group}' is rebalancing.", file=sys.stderr)


def _ends(cluster: ClusterClient, places: Iterable[PartitionName]) -> dict[PartitionName, int]:
    """The ends of those partitions that still exist and have a leader."""
    known = leaders(cluster, (topic for topic, _ in places))
    found = offsets_at(cluster, {place: LATEST for place in places if place in known}, leader_of=known)
    return {place: each.offset for place, each in found.items() if each.error is None}


def delete(cluster: ClusterClient, given: GivenOptions) -> int:
    done, failed = [], {}
    for group in _groups(cluster, given):
        try:
            delete_group(cluster, group)
            done.append(group)
        except KafkaError as error:
            failed[group] = error
    named = ", ".join(f"'{group}'" for group in done)
    if not failed:
        print(f"Deletion of requested consumer groups ({named}) was successful.")
        return 0
    print("\nError: Deletion of some consumer groups failed:")
    for group, refusal in failed.items():
        print(f"* Group '{group}' could not be deleted due to: {refusal.java}")
    if done:
        print(f"\nThese consumer groups were deleted successfully: {named}")
    return 1


def reset_offsets(cluster: ClusterClient, given: GivenOptions) -> int:
    if not given.has("execute") and not given.has("dry-run"):
        print(
            "WARN: No action will be performed as the --execute option is missing. You should add the --dry-run option "
            "explicitly if you are scripting this command.",
            file=sys.stderr,
        )
    plans: dict[str, dict[PartitionName, int]] = {}
    code = 0
    for group in _groups(cluster, given):
        state = _state_of(cluster, group)
        if state not in ("Empty", "Dead"):
            print(
                f"\nError: Assignments can only be reset if the group '{group}' is inactive, but the current state "
                f"is {state}."
            )
            plans[group], code = {}, 1
            continue
        try:
            plans[group] = group_reset.plan(cluster, given, group)
            if given.has("execute"):
                commit_offsets(cluster, group, plans[group])
        except KafkaError as error:
            raise ToolError(str(error)) from error  # Kafka's tool names no exception here
    if given.has("export"):
        print(group_reset.export(plans, given.all("group")))
    else:
        sys.stdout.write(group_tables.reset_table(plans))
    return code


def _state_of(cluster: ClusterClient, group: str) -> str:
    """A group that does not exist yet is made by the first offset that is committed for it."""
    try:
        return describe_group(cluster, group).state
    except KafkaError as error:
        if error.code != GROUP_ID_NOT_FOUND:
            raise
        return "Dead"


def delete_offsets(cluster: ClusterClient, given: GivenOptions) -> int:
    group = given.one("group")
    results: dict[PartitionName, str | None] = {}
    places: list[PartitionName] = []
    for arg in given.all("topic"):
        try:
            places += group_reset.topic_places(cluster, [arg])
        except KafkaError as error:
            results[arg, -1] = error.java
    code, found = _delete_offsets(cluster, group, places)
    results |= found
    if code == 0:
        print(f"Request succeeded for deleting offsets from group {group}.")
    elif code in _PARTITION_LEVEL:
        print("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        print(f"\nError: {KafkaError(code)}")
    sys.stdout.write(group_tables.deleted_table(results))
    return 0 if not any(results.values()) and code == 0 else 1


def _delete_offsets(
    cluster: ClusterClient, group: str, places: list[PartitionName]
) -> tuple[int, dict[PartitionName, str | None]]:
    """The error of the whole, or the first of a partition, and what became of each partition."""
    topics: dict[str, list[dict[str, int]]] = {}
    for topic, number in places:
        topics.setdefault(topic, []).append({"partition_index": number})
    _, connection = cluster.coordinator(group)
    body = {"group_id": group, "topics": [{"name": topic, "partitions": each} for topic, each in topics.items()]}
    answer = connection.call(OFFSET_DELETE, body)
    if answer.error_code:
        error = KafkaError(answer.error_code).java
        return int(answer.error_code), dict.fromkeys(places, error)
    codes = {
        (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
    }
    results = {place: KafkaError(code).java if code else None for place, code in codes.items()}
    return next((int(code) for code in codes.values() if code), 0), results


def validate_regex(pattern: str) -> int:
    """With the same library that a Headrace broker matches subscriptions with."""
    from headrace.coordinator.topic_pattern import TopicPattern
    from headrace.core.errors import PeerError

    try:
        TopicPattern(pattern)
    except PeerError as error:
        print(f"The regular expression `{pattern}` is invalid: {error.message}.")
        return 0
    print(f"The regular expression `{pattern}` is valid.")
    return 0
