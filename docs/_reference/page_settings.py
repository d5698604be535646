"""Every setting of a broker and of a topic, from the fields that the broker itself reads them by."""

import dataclasses
import inspect
import re
from collections.abc import Iterator

from page_parts import code, plain, table, whole

from headrace.broker.topic_config import TOPIC_SETTINGS
from headrace.core.settings.broker import BrokerSettings
from headrace.core.settings.types import INT_MAX, LONG_MAX, Kind, Setting, format_value, setting_of
from headrace.core.settings.view import describe_fields
from headrace.keeper.settings import KeeperSettings

INTRO = """A setting that Kafka has keeps Kafka's name and, except where the text says otherwise, its default. It can be
given in `server.properties` (`headrace broker FILE`), in the environment (`log.segment.bytes` is
`HEADRACE_LOG_SEGMENT_BYTES`), with `headrace up --set KEY=VALUE`, or as an argument of `headrace.Broker`
(`log_segment_bytes=…`); the later of these wins. A key that is not known is a warning with the nearest known one, a
value that is out of bounds ends the start with one line. Settings marked • can be changed while the broker runs
(`headrace config set`)."""
TOPICS = """Set when a topic is created (`headrace topic create NAME --set KEY=VALUE`) or later (`headrace topic
alter`). What a topic does not set comes from the broker's setting, now and after a change of it."""
KEEPER = """ZooKeeper's names, in a `zoo.cfg` (`headrace keeper zoo.cfg`), or the second name as an argument of
`headrace.Keeper`. Without effect, since a keeper is one node: `initLimit`, `syncLimit`, `admin.*`, `forceSync` and
their like."""
HEADER = ("setting", "type", "default", "values", "what it does")


def page() -> str:
    return whole(
        "Settings",
        " ".join(INTRO.split()),
        "## Of a broker",
        *_sections(),
        "## Of a topic",
        " ".join(TOPICS.split()),
        table(HEADER, _topic_rows()),
        "## Of a keeper",
        " ".join(KEEPER.split()),
        table(HEADER, _keeper_rows()),
    )


def _sections() -> Iterator[str]:
    """The dataclass's own headings: the comments that stand above the fields."""
    rows = {key: (key, kind, default, help) for key, kind, default, help in describe_fields(_fields())}
    settings = {described.key: (each, described) for each in _fields() if (described := setting_of(each))}
    shown: set[str] = set()
    for heading, names in _headings():
        lines = []
        for key in _keys(names):
            if key in rows and key not in shown:
                shown.add(key)
                lines.append(_broker_row(*rows[key], settings.get(key)))
        if lines:
            yield f"### {heading}"
            yield table(HEADER, lines)
    if missing := set(rows) - shown:
        raise RuntimeError(f"settings that stand under no heading of their dataclass: {sorted(missing)}")


def _fields() -> tuple["dataclasses.Field[object]", ...]:
    return dataclasses.fields(BrokerSettings)


def _headings() -> Iterator[tuple[str, list[str]]]:
    """(heading, the fields under it), class by class; the first class of the chain is what a reader looks for first."""
    for each in BrokerSettings.__mro__:
        if not dataclasses.is_dataclass(each):
            continue
        heading, names = "", []
        for line in inspect.getsource(each).splitlines():
            if found := re.fullmatch(r"    # (.+)", line):
                if names:
                    yield heading, names
                heading, names = found[1], []
            elif found := re.match(r"    (\w+): .*= setting\(", line):
                names.append(found[1])
        if names:
            yield heading, names


def _keys(names: list[str]) -> Iterator[str]:
    """The keys as describe_fields has them: host and port are shown as listeners."""
    joined = {"host": "listeners", "advertised_host": "advertised.listeners"}
    for name in names:
        if name in joined:
            yield joined[name]
        described = setting_of(BrokerSettings.__dataclass_fields__[name])
        if described is not None:
            yield described.key


def _broker_row(
    key: str, kind: str, default: str, help: str, found: "tuple[dataclasses.Field[object], Setting] | None"
) -> tuple[str, ...]:
    if found is None:
        return code(key), kind, code(default), "PLAINTEXT://host:port", plain(help)
    described = found[1]
    aliases = [alias.key for alias in described.aliases]
    words = plain(help) + (f" Also {', '.join(map(code, aliases))}." if aliases else "")
    mark = " •" if described.dynamic else ""
    return code(key) + mark, kind, _default(default), _limit(described), words


def _default(text: str) -> str:
    return "no bound" if text in (str(INT_MAX), str(LONG_MAX)) else code(text)


def _limit(described: Setting) -> str:
    if described.kind is Kind.BOOLEAN:
        return "`true`, `false`"
    if described.choices:
        return ", ".join(map(code, described.choices))
    if described.kind in (Kind.STRING, Kind.LIST):
        return ""
    words = described.limit().removeprefix("a whole number").removeprefix("a number").strip()
    return words.removeprefix("of ").removeprefix(", ").replace(" for no limit", "")


def _keeper_rows() -> Iterator[tuple[str, ...]]:
    for each in dataclasses.fields(KeeperSettings):
        about = each.metadata
        kind, values, default = "string", "", str(each.default)
        if isinstance(each.default, bool):
            kind, values, default = "boolean", "`true`, `false`", default.lower()
        elif isinstance(each.default, int):
            kind = "int"
            values = f"{about['low']} to {about['high']}".replace(f" to {INT_MAX}", " or more")
        names = f"{code(about['key'])} / {code(each.name)}"
        yield names, kind, _default(default), values, plain(about["help"])


def _topic_rows() -> Iterator[tuple[str, ...]]:
    defaults = BrokerSettings()
    for key, row in TOPIC_SETTINGS.items():
        if row.hidden:
            continue
        keys = row.broker_keys() if row.broker_field is not None else ()
        of_broker = f" Broker: {code(keys[0])}." if keys else ""
        default = format_value(row.value({}, defaults))
        yield (
            code(key),
            row.setting.kind.name.lower(),
            _default(default),
            _limit(row.setting),
            plain(row.setting.help) + of_broker,
        )
