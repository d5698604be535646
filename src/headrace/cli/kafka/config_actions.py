"""What `kafka-configs.sh` does with settings of topics, brokers, groups and metrics; quotas are in `quotas`."""

import re

from headrace.cli.kafka.configs import BROKERS, CLIENTS, GROUPS, IPS, LOGGERS, METRICS, TOPICS, USERS
from headrace.cli.kafka.options import GivenOptions
from headrace.cli.kafka.tool import ToolError
from headrace.client.cluster import ClusterClient
from headrace.client.errors import KafkaError, check
from headrace.client.groups import list_groups
from headrace.client.topic_admin import SET, UNSET
from headrace.client.topics import DescribedSetting, describe_configs, topic_names
from headrace.client.wire import UnsupportedError
from headrace.protocol.api_keys import INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES

_RESOURCE = {TOPICS: 2, BROKERS: 4, LOGGERS: 8, METRICS: 16, GROUPS: 32}
_SOURCES = (
    "UNKNOWN",
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
)
_DYNAMIC = {TOPICS: 1, BROKERS: 2, METRICS: 7, GROUPS: 8}
_DYNAMIC_DEFAULT = 3
# A comma or an equals sign counts only outside of square brackets.
_OUTSIDE = r"(?=[^\]]*(?:\[|$))"
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")


def describe(cluster: ClusterClient, types: list[str], names: list[str], *, everything: bool) -> None:
    kind = types[0]
    if kind in (USERS, CLIENTS, IPS):
        from headrace.cli.kafka import quotas

        quotas.describe(cluster, types, names)
        return
    name = names[0] if names else None
    if name is not None and not everything and not _exists(cluster, kind, name):
        print(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    for entity in [name] if name is not None else _all(cluster, kind):
        if entity == "":
            print(f"Default configs for {kind} in the cluster are:")
        else:
            print(f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {entity} are:")
        for each in _settings(cluster, kind, entity, everything):
            print(_line(each))


def _line(setting: DescribedSetting) -> str:
    synonyms = ", ".join(f"{_SOURCES[source]}:{name}={_shown(value)}" for name, value, source in setting.synonyms)
    sensitive = "true" if setting.sensitive else "false"
    return f"  {setting.name}={_shown(setting.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _exists(cluster: ClusterClient, kind: str, name: str) -> bool:
    if kind in (BROKERS, LOGGERS):
        return name == "" or int(name) in cluster.nodes()
    if kind == GROUPS:
        known = _with_settings(cluster, kind)
        # A broker that cannot list them might still have some.
        return known is None or name in known or any(each.group == name for each in list_groups(cluster))
    return name in _all(cluster, kind)


def _all(cluster: ClusterClient, kind: str) -> list[str]:
    if kind == TOPICS:
        return topic_names(cluster)
    if kind in (BROKERS, LOGGERS):
        return [*map(str, sorted(cluster.nodes())), ""]
    names = _with_settings(cluster, kind) or set()
    if kind == GROUPS:
        names |= {each.group for each in list_groups(cluster)}
    return sorted(names)


def _with_settings(cluster: ClusterClient, kind: str) -> set[str] | None:
    """The groups or metrics that have settings; None for groups if the broker cannot say."""
    try:
        answer = cluster.any.call(LIST_CONFIG_RESOURCES, {"resource_types": [_RESOURCE[kind]]})
        check(answer.error_code)
    except UnsupportedError:
        if kind == METRICS:
            raise
        return None
    if hasattr(answer, "config_resources"):
        return {each.resource_name for each in answer.config_resources}
    return {each.name for each in answer.client_metrics_resources}


def _settings(cluster: ClusterClient, kind: str, name: str, everything: bool) -> list[DescribedSetting]:
    node = int(name) if kind in (BROKERS, LOGGERS) and name else None
    found = describe_configs(cluster, _RESOURCE[kind], name, node)
    if not everything and kind != LOGGERS:
        wanted = _DYNAMIC_DEFAULT if kind == BROKERS and not name else _DYNAMIC[kind]
        found = [each for each in found if each.source == wanted]
    return sorted(found)


def alter(cluster: ClusterClient, given: GivenOptions, types: list[str], names: list[str]) -> None:
    kind, name = types[0], names[0]
    added, removed = to_add(given), [key.strip() for text in given.all("delete-config") for key in text.split(",")]
    if kind in (USERS, CLIENTS, IPS):
        from headrace.cli.kafka import quotas

        quotas.alter(cluster, types, names, added, removed)
    else:
        if kind == LOGGERS:
            known = {each.name for each in _settings(cluster, kind, name, everything=False)}
            unknown = [key for key in (*removed, *added) if key not in known]
            if unknown:
                raise ToolError(f"Invalid broker logger(s): {','.join(unknown)}")
        _alter_resource(cluster, kind, name, added, removed)
    if name:
        print(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")


def to_add(given: GivenOptions) -> dict[str, str]:
    from headrace.client.properties import load

    found = load(given.one("add-config-file")) if given.has("add-config-file") else {}
    if given.has("add-config"):
        for part in re.split("," + _OUTSIDE, given.one("add-config")):
            pair = re.split(r"\s*=\s*" + _OUTSIDE, part)
            if len(pair) != 2:
                raise ToolError(
                    "requirement failed: Invalid entity config: all configs to be added must be in the format "
                    '"key=val" or  "key=[val1,val2]" to group values which contain commas.'
                )
            found[pair[0].strip()] = pair[1].replace("[", "").replace("]", "").strip()
    for key in found:
        if not _KEY.fullmatch(key):
            raise ToolError(f"Invalid character found for config key: {key}")
    return found


def _alter_resource(cluster: ClusterClient, kind: str, name: str, added: dict[str, str], removed: list[str]) -> None:
    changes = [{"name": key, "config_operation": UNSET, "value": ""} for key in removed]
    changes += [{"name": key, "config_operation": SET, "value": value} for key, value in added.items()]
    resource = {"resource_type": _RESOURCE[kind], "resource_name": name, "configs": changes}
    asked = cluster.at(int(name)) if kind in (BROKERS, LOGGERS) and name else cluster.any

    def ask() -> None:
        body = {"resources": [resource], "validate_only": False}
        for result in asked.call(INCREMENTAL_ALTER_CONFIGS, body).responses:
            check(result.error_code, result.error_message)

    try:
        cluster.patiently(ask)
    except KafkaError as error:
        raise ToolError(f"Error while altering config of {kind[:-1]} {name or 'defaults'}: {error.java}") from error
