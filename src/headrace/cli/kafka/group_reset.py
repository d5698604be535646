"""Where a group's offsets are to go: one function for each way of `--reset-offsets`. Reads, and changes nothing."""

import csv
import datetime
import re
import sys
import time
from collections.abc import Iterable

from headrace.cli.kafka.options import GivenOptions
from headrace.cli.kafka.tool import ToolError, UsageError
from headrace.client.cluster import ClusterClient
from headrace.client.errors import KafkaError
from headrace.client.groups import committed_offsets
from headrace.client.offsets import EARLIEST, LATEST, NO_OFFSET, PartitionName, leaders, offsets_at
from headrace.protocol.error_codes import UNKNOWN_TOPIC_OR_PARTITION

SCENARIOS = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
_UNQUOTED_MAX = 24
_DURATION = re.compile(
    r"([+-]?)P(?:([+-]?\d+)D)?(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+)(?:[.,](\d{1,9}))?S)?)?", re.I
)


def plan(cluster: ClusterClient, given: GivenOptions, group: str) -> dict[PartitionName, int]:
    """The new offset of each partition."""
    if given.has("from-file"):
        return _from_file(cluster, given, group)
    places = _scope(cluster, given, group)
    _check_exist(cluster, places)
    if given.has("to-offset"):
        return _within_range(cluster, dict.fromkeys(places, given.one("to-offset")))
    if given.has("to-earliest"):
        return _offsets(cluster, places, EARLIEST)
    if given.has("to-latest"):
        return _offsets(cluster, places, LATEST)
    if given.has("shift-by"):
        return _within_range(cluster, _shifted(cluster, group, places, given.one("shift-by")))
    if given.has("to-datetime"):
        return _at_time(cluster, places, parse_datetime(given.one("to-datetime")))
    if given.has("by-duration"):
        return _at_time(cluster, places, time.time_ns() // 1_000_000 - parse_duration(given.one("by-duration")))
    if given.has("to-current"):
        done = committed_offsets(cluster, group)
        held = {place: done[place].offset for place in places if place in done}
        return held | _offsets(cluster, [place for place in places if place not in done], LATEST)
    known = ", ".join(f"[{name}]" for name in SCENARIOS)
    raise UsageError(f"Option '[reset-offsets]' requires one of the following scenarios: [{known}]")


def _scope(cluster: ClusterClient, given: GivenOptions, group: str) -> list[PartitionName]:
    if given.has("all-topics"):
        return sorted(committed_offsets(cluster, group))
    if given.has("topic"):
        return topic_places(cluster, given.all("topic"))
    raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")


def topic_places(cluster: ClusterClient, args: Iterable[str]) -> list[PartitionName]:
    """`topic` is all its partitions, `topic:0,2` these two."""
    places: list[PartitionName] = []
    for arg in args:
        if ":" in arg:
            places += parse_places(arg)
            continue
        (topic,) = cluster.metadata([arg]).topics
        if topic.error_code:
            raise KafkaError(topic.error_code)
        places += [(arg, each.partition_index) for each in topic.partitions]
    return sorted(set(places))


def parse_places(arg: str) -> list[PartitionName]:
    parts = arg.split(":")
    if len(parts) != 2:
        raise UsageError(f"Invalid topic arg '{arg}', expected topic name and partitions")
    found = []
    for number in parts[1].split(","):
        if not number.isdigit():
            raise UsageError(f"Invalid partition '{number}' specified in topic arg '{arg}''")
        found.append((parts[0], int(number)))
    return found


def _check_exist(cluster: ClusterClient, places: Iterable[PartitionName]) -> None:
    known = leaders(cluster, (topic for topic, _ in places))
    missing = [place for place in places if place not in known]
    if missing:
        named = ",".join(f"{topic}-{number}" for topic, number in missing)
        raise KafkaError(UNKNOWN_TOPIC_OR_PARTITION, f'The partitions "{named}" do not exist')


def _offsets(cluster: ClusterClient, places: Iterable[PartitionName], when: int) -> dict[PartitionName, int]:
    found = {}
    for place, answer in offsets_at(cluster, dict.fromkeys(places, when)).items():
        if answer.error is not None:
            raise answer.error
        found[place] = answer.offset
    return found


def _shifted(cluster: ClusterClient, group: str, places: Iterable[PartitionName], by: int) -> dict[PartitionName, int]:
    done = committed_offsets(cluster, group)
    for topic, number in places:
        if (topic, number) not in done:
            raise UsageError(
                f"Cannot shift offset for partition {topic}-{number} since there is no current committed offset"
            )
    return {place: done[place].offset + by for place in places}


def _at_time(cluster: ClusterClient, places: Iterable[PartitionName], ms: int) -> dict[PartitionName, int]:
    found = _offsets(cluster, places, ms)
    without = [place for place, offset in found.items() if offset == NO_OFFSET]
    for topic, number in without:
        print(f"\nWarn: Partition {number} from topic {topic} is empty. Falling back to latest known offset.")
    return found | _offsets(cluster, without, LATEST)


def _within_range(cluster: ClusterClient, wanted: dict[PartitionName, int]) -> dict[PartitionName, int]:
    first, last = _offsets(cluster, wanted, EARLIEST), _offsets(cluster, wanted, LATEST)
    found = {}
    for place, offset in wanted.items():
        name = f"{place[0]}-{place[1]}"
        if offset > last[place]:
            _warn(f"New offset ({offset}) is higher than latest offset for topic partition {name}", last[place])
        elif offset < first[place]:
            _warn(f"New offset ({offset}) is lower than earliest offset for topic partition {name}", first[place])
        found[place] = max(first[place], min(offset, last[place]))
    return found


def _warn(what: str, instead: int) -> None:
    print(f"WARN {what}. Value will be set to {instead}", file=sys.stderr)


def _from_file(cluster: ClusterClient, given: GivenOptions, group: str) -> dict[PartitionName, int]:
    plans = read_plan(given.one("from-file"), given.all("group"))
    if group not in plans:
        print(f"\nError: No reset plan for group {group} found")
        return {}
    _check_exist(cluster, plans[group])
    return _within_range(cluster, plans[group])


def read_plan(path: str, groups: list[str]) -> dict[str, dict[PartitionName, int]]:
    """`topic,partition,offset` of the one group that was named, or `group,topic,partition,offset`."""
    try:
        with open(path, newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except OSError as error:
        raise ToolError(f"{path}: {(error.strerror or str(error)).lower()}; give the path of a CSV file") from error
    plans: dict[str, dict[PartitionName, int]] = {}
    for number, row in enumerate(rows, start=1):
        if len(row) == 3 and len(groups) == 1:
            row = [groups[0], *row]
        try:
            group, topic, partition, offset = row
            plans.setdefault(group, {})[topic, int(partition)] = int(offset)
        except ValueError:
            shape = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise ToolError(f"{path}:{number}: {','.join(row)!r} is not {shape}") from None
    return plans


def export(plans: dict[str, dict[PartitionName, int]], groups: list[str]) -> str:
    lines = []
    for group, plan_of_group in plans.items():
        for (topic, number), offset in sorted(plan_of_group.items()):
            name = [] if len(groups) == 1 else [_quoted(group)]
            lines.append(",".join([*name, _quoted(topic), str(number), str(offset)]) + "\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    """As Kafka's tool quotes: what is long, or holds a character up to the comma."""
    if len(text) <= _UNQUOTED_MAX and all(character > "," for character in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def parse_datetime(text: str) -> int:
    """`YYYY-MM-DDThh:mm:ss.sss`, with a zone or in UTC, as milliseconds."""
    if "T" not in text:
        raise ToolError(f"{text}: Error parsing timestamp. It does not contain a 'T' according to ISO8601 format")
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ToolError(f"{text}: is no date like 2026-05-17T08:30:00.000") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return int(when.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """`PnDTnHnMnS` in milliseconds."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:5]):
        raise ToolError(f"{text}: Text cannot be parsed to a Duration; write PnDTnHnMnS, for example PT1H30M")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    total = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60_000 + int(seconds or 0) * 1000
    if fraction:
        part = int(fraction.ljust(9, "0")) // 1_000_000
        total += -part if (seconds or "").startswith("-") else part
    return -total if sign == "-" else total
