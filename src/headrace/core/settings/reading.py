"""From files, environment and flags to the values of a settings dataclass.

A source is a list of `GivenSetting`. Sources come in falling precedence (flags, environment, file); within one
source Kafka's own order of keys counts (`log.retention.ms` before `.minutes` before `.hours`). An unknown key
is a warning with the nearest known name; a bad value an `OperatorError` with place, key, value and remedy.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.core.cluster_keys import cluster_warnings
from headrace.core.errors import OperatorError
from headrace.core.kafka_keys import UNSUPPORTED, is_without_meaning, names_without_meaning
from headrace.core.listeners import WILDCARDS, client_listeners
from headrace.core.properties import parse_properties
from headrace.core.settings.types import Alias, Setting, parse_value, refuse, setting_of

_LISTENER_KEYS = ("listeners", "advertised.listeners")
# Variables that others read: the command line's own, the cache's, and those of tests and benchmarks.
_FOREIGN_VARIABLES = (
    "HEADRACE_CACHE",
    "HEADRACE_DEBUG",
    "HEADRACE_LOG_LEVEL",
    "HEADRACE_LOG_FORMAT",
    "HEADRACE_TEST_",
    "HEADRACE_BENCH_",
)
_FOREIGN_NAMES = frozenset(
    f"HEADRACE_{name}" for name in ("BOOTSTRAP", "CACHE", "CLIENT", "MASTER", "NATIVE", "QUERY_MEMORY", "TABLES")
)
_SHORT_VARIABLES = {"HEADRACE_HOST": "host.name", "HEADRACE_DATA": "log.dirs"}


class GivenSetting(NamedTuple):
    """One setting as somebody wrote it, and where."""

    key: str
    text: str
    where: str


class Reading(NamedTuple):
    values: dict[str, Any]  # by field name
    given: dict[str, str]  # by Kafka key, as written
    warnings: list[str]
    without_meaning: list[str]


def properties_source(text: str, source: str) -> list[GivenSetting]:
    return [GivenSetting(entry.key, entry.value, f"{source}:{entry.line}") for entry in parse_properties(text, source)]


def flags_source(flag: str, pairs: Iterable[str]) -> list[GivenSetting]:
    """`key=value` arguments of a flag such as `--set`."""
    found = []
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise OperatorError(f"{flag} {pair} is not key=value; write it like {flag} num.partitions=3")
        found.append(GivenSetting(key.strip(), text.strip(), flag))
    return found


def variable_of(key: str) -> str:
    """The environment variable of a key: `log.segment.bytes` is HEADRACE_LOG_SEGMENT_BYTES."""
    return "HEADRACE_" + key.removeprefix("headrace.").upper().replace(".", "_").replace("-", "_")


def environment_source(environ: Mapping[str, str], known: Iterable[str]) -> tuple[list[GivenSetting], list[str]]:
    by_variable = {variable_of(key): key for key in known} | _SHORT_VARIABLES
    found, warnings = [], []
    for variable in sorted(environ):
        if not variable.startswith("HEADRACE_") or variable.startswith(_FOREIGN_VARIABLES):
            continue
        if variable in _FOREIGN_NAMES:
            continue
        if variable in by_variable:
            found.append(GivenSetting(by_variable[variable], environ[variable], f"environment {variable}"))
        else:
            warnings.append(f"environment: {variable} is not a setting, ignored{_nearest(variable, by_variable)}")
    return found, warnings


def known_keys(fields: Sequence["dataclasses.Field[Any]"]) -> list[str]:
    keys = list(_LISTENER_KEYS)
    for field in fields:
        if described := setting_of(field):
            keys += [described.key, *(alias.key for alias in described.aliases)]
    return keys


def read(fields: Sequence["dataclasses.Field[Any]"], sources: Sequence[Sequence[GivenSetting]]) -> Reading:
    """The values of all fields that some source gives, sources in falling precedence."""
    known = set(known_keys(fields))
    reading = Reading({}, {}, [], [])
    strongest: dict[str, GivenSetting] = {}
    for source in reversed(sources):
        strongest.update((given.key, given) for given in source)
    for source in sources:
        by_key = _sort_out(source, known, reading)
        for key, text in by_key.items():
            reading.given.setdefault(key, text.text)
        values = dict(_listener_values(by_key, strongest))
        for field in fields:
            described = setting_of(field)
            if described and field.name not in values and (found := _field_value(described, field, by_key)):
                values[field.name] = found[0]
        for name, value in values.items():
            reading.values.setdefault(name, value)
    reading.warnings.extend(cluster_warnings(strongest))
    return reading


def _sort_out(source: Sequence[GivenSetting], known: set[str], reading: Reading) -> dict[str, GivenSetting]:
    """The entries that are settings of ours; the others end in a warning or among those without meaning."""
    by_key: dict[str, GivenSetting] = {}
    for given in source:
        if given.key in known:
            if given.key in by_key and by_key[given.key].where != given.where:
                where = by_key[given.key].where
                reading.warnings.append(f"{given.where}: {given.key} is also set at {where}; this one counts")
            by_key[given.key] = given
        elif given.key in UNSUPPORTED:
            quiet, reason = UNSUPPORTED[given.key]
            if given.text.strip() not in quiet:
                reading.warnings.append(f"{given.where}: {given.key}={given.text} has no effect: {reason}")
        elif is_without_meaning(given.key):
            reading.without_meaning.append(given.key)
        else:
            hint = _nearest(given.key, known | names_without_meaning())
            reading.warnings.append(f"{given.where}: {given.key} is not a setting, ignored{hint}")
    return by_key


def _listener_values(
    by_key: Mapping[str, GivenSetting], strongest: Mapping[str, GivenSetting]
) -> Iterable[tuple[str, Any]]:
    controllers, protocols = (
        strongest[key].text if key in strongest else ""
        for key in ("controller.listener.names", "listener.security.protocol.map")
    )
    for key in _LISTENER_KEYS:
        given = by_key.get(key)
        if given is None or not given.text.strip():
            continue
        found = client_listeners(given.where, key, given.text, controllers=controllers, protocols=protocols)
        if key == "listeners":
            # Kafka binds every interface when the host is left out.
            served = tuple([each._replace(host=each.host or "0.0.0.0") for each in found])
            yield "listeners", served
            yield "host", served[0].host
            yield "port", served[0].port
            continue
        if any(each.host in WILDCARDS[1:] for each in found):
            raise refuse(given.where, key, given.text, "is not an address that clients can reach", "a host name or IP")
        yield "advertised_listeners", found
        yield "advertised_host", ""  # a weaker source's counts no more
        yield "advertised_port", 0


def _field_value(
    described: Setting, field: "dataclasses.Field[Any]", by_key: Mapping[str, GivenSetting]
) -> tuple[Any] | None:
    if described.key in by_key:
        given = by_key[described.key]
        value = parse_value(described.kind, given.text)
        if problem := described.problem(value):
            raise refuse(given.where, given.key, given.text, problem, described.limit())
        return (",".join(value) if isinstance(value, tuple) and isinstance(field.default, str) else value,)
    for alias in described.aliases:
        if alias.key in by_key:
            return (_alias_value(described, alias, by_key[alias.key]),)
    return None


def _alias_value(described: Setting, alias: Alias, given: GivenSetting) -> Any:
    own = Setting(key=alias.key, kind=alias.kind, help="", low=alias.low, unlimited=described.unlimited)
    value = parse_value(alias.kind, given.text)
    if problem := own.problem(value):
        raise refuse(given.where, given.key, given.text, problem, own.limit())
    if alias.scale != 1 and value != described.unlimited:
        value *= alias.scale
    return value


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else ""
