"""The tables of `kafka-consumer-groups.sh`, column by column as Kafka prints them. Facts in, lines out; no IO."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.client.groups import Committed, GroupDetails, ListedGroup, MemberFacts
from headrace.client.offsets import PartitionName

NONE = "-"


class GroupTableRow(NamedTuple):
    """One partition of a group."""

    group: str
    topic: str
    partition: int
    leader_epoch: int | None
    offset: int | None
    end: int | None
    consumer: str
    host: str
    client: str

    @property
    def lag(self) -> int | None:
        return None if self.offset is None or self.end is None else self.end - self.offset


def partitions_of(
    facts: GroupDetails, committed: dict[PartitionName, Committed]
) -> list[tuple[PartitionName, MemberFacts | None]]:
    """Who has which partition: the members with most of them first, then what nobody has."""
    owners = sorted((each for each in facts.members if each.assignment), key=lambda each: -len(each.assignment))
    held = [(place, member) for member in owners for place in member.assignment]
    taken = {place for place, _ in held}
    free = sorted(place for place in committed if place not in taken)
    return [*held, *((place, None) for place in free)]


def offset_rows(
    facts: GroupDetails, committed: dict[PartitionName, Committed], ends: dict[PartitionName, int]
) -> list[GroupTableRow]:
    rows = []
    for place, member in partitions_of(facts, committed):
        done = committed.get(place)
        who = (NONE, NONE, NONE) if member is None else (member.id, member.host, member.client_id)
        epoch, offset = (None, None) if done is None else (done.leader_epoch, done.offset)
        rows.append(GroupTableRow(facts.group, *place, epoch, offset, ends.get(place), *who))
    return rows


def offset_table(rows: Sequence[GroupTableRow], verbose: bool) -> str:
    group, topic = _width(15, (row.group for row in rows)), _width(15, (row.topic for row in rows))
    consumer, host = _width(15, (row.consumer for row in rows)), _width(15, (row.host for row in rows))
    titles = ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    widths = [group, topic, 10, 15, 15, 15, 15, consumer, host, 0]
    lines: list[list[object]] = [[*titles, "CONSUMER-ID", "HOST", "CLIENT-ID"]]
    for row in rows:
        numbers = (row.partition, row.leader_epoch, row.offset, row.end, row.lag)
        lines.append([row.group, row.topic, *map(_or_dash, numbers), row.consumer, row.host, row.client])
    if not verbose:
        widths.pop(3)
        for line in lines:
            line.pop(3)
    return "".join("\n" + _padded(line, widths) for line in lines) + "\n"


def member_table(facts: GroupDetails, verbose: bool) -> str:
    members = facts.members
    named = any(member.instance_id for member in members)
    mixed = {member.upgraded for member in members} >= {True, False}
    widths = [_width(15, [facts.group] if members else []), _width(15, (member.id for member in members))]
    titles = ["GROUP", "CONSUMER-ID"]
    if named:
        titles.append("GROUP-INSTANCE-ID")
        widths.append(_width(17, (member.instance_id or "" for member in members)))
    titles += ["HOST", "CLIENT-ID", "#PARTITIONS"]
    widths += [
        _width(15, (member.host for member in members)),
        _width(15, (member.client_id for member in members)),
        15,
    ]
    lines: list[list[object]] = [[*titles]]
    if verbose:
        lines[0] += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        widths += [15, _width(20, (_assignment(member.assignment) for member in members)), 15]
        widths += [_width(20, (_assignment(member.target) for member in members))]
        if mixed:
            lines[0].append("UPGRADED")
            widths.append(0)
    for member in members:
        line: list[object] = [facts.group, member.id]
        if named:
            line.append(member.instance_id or "")
        line += [member.host, member.client_id, len(member.assignment)]
        if verbose:
            line += [_or_dash(member.epoch), _assignment(member.assignment)]
            line += [_or_dash(facts.target_epoch), _assignment(member.target)]
            if mixed:
                line.append(_or_dash(None if member.upgraded is None else str(member.upgraded).lower()))
        lines.append(line)
    # Kafka's columns of this table end in a blank, unless the line goes on.
    tail = "" if verbose else " "
    return "\n" + "".join(_padded(line, widths) + tail + "\n" for line in lines)


def state_table(facts: GroupDetails, verbose: bool) -> str:
    coordinator = f"{facts.coordinator.host}:{facts.coordinator.port}  ({facts.coordinator.id})"
    widths = [_width(15, [facts.group]), _width(25, [coordinator]), 20, 20]
    titles: list[object] = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    values: list[object] = [facts.group, coordinator, facts.assignor or NONE, facts.state]
    if verbose:
        widths += [15, 25]
        titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        values += [_or_dash(facts.epoch), _or_dash(facts.target_epoch)]
    widths.append(0)
    lines = ([*titles, "#MEMBERS"], [*values, len(facts.members)])
    return "".join("\n" + _padded(line, widths) for line in lines) + "\n"


def list_table(groups: Sequence[ListedGroup], *, types: bool, states: bool) -> str:
    widths = [_width(15, (each.group for each in groups)) + 10, *([20] if types else []), *([20] if states else [])]
    lines: list[list[object]] = [["GROUP", *(["TYPE"] if types else []), *(["STATE"] if states else [])]]
    for each in groups:
        lines.append([each.group, *([each.type] if types else []), *([each.state] if states else [])])
    return "".join(_padded(line, widths) + "\n" for line in lines)


def reset_table(plans: dict[str, dict[PartitionName, int]]) -> str:
    places = [place for plan in plans.values() for place in plan]
    widths = [_width(15, plans), _width(15, (topic for topic, _ in places)), 10, 0]
    lines: list[list[object]] = [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]] if plans else []
    lines += [
        [group, topic, number, plan[topic, number]] for group, plan in plans.items() for topic, number in sorted(plan)
    ]
    return "".join("\n" + _padded(line, widths) for line in lines) + "\n"


def deleted_table(results: dict[PartitionName, str | None]) -> str:
    """Partition by partition, whether its offset went; -1 stands for a topic whose partitions are unknown."""
    widths = [_width(15, (topic for topic, _ in results)), 10, 15]
    lines: list[list[object]] = [["TOPIC", "PARTITION", "STATUS"]]
    for (topic, number), error in sorted(results.items(), key=lambda each: f"{each[0][0]}{each[0][1]}"):
        status = "Successful" if error is None else f"Error: {error}"
        lines.append([topic, NONE if number < 0 else number, status])
    return "".join("\n" + _padded(line, widths) for line in lines) + "\n"


def _assignment(places: Sequence[PartitionName]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, number in places:
        by_topic.setdefault(topic, []).append(number)
    shown = (f"{topic}:{','.join(map(str, sorted(numbers)))}" for topic, numbers in sorted(by_topic.items()))
    return ";".join(shown) or NONE


def _or_dash(value: object) -> object:
    return NONE if value is None else value


def _width(least: int, texts: Iterable[str]) -> int:
    return max(least, *map(len, texts), 0)


def _padded(values: Sequence[object], widths: Sequence[int]) -> str:
    return " ".join(f"{value!s:<{width}}" if width else str(value) for value, width in zip(values, widths, strict=True))
