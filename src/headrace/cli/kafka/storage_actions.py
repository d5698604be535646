"""What `kafka-storage.sh` does: writes `meta.properties` into new log directories, and prints what is in them."""

import os
import re
import sys
from typing import TYPE_CHECKING

from headrace.cli.kafka.options import GivenOptions
from headrace.cli.kafka.tool import ToolError

if TYPE_CHECKING:
    from headrace.core.settings.broker import BrokerSettings
    from headrace.log.directory import LogDirectory

_CLUSTER_ID = re.compile(r"[A-Za-z0-9._-]+")
_WITHOUT_EFFECT = {
    "initial-controllers": "clusters are not supported yet, so a broker has no controllers",
    "add-scram": "the broker has no authentication; whoever reaches the port may do everything",
}


def random_uuid(given: GivenOptions) -> int:
    from headrace.broker.catalog import new_cluster_id

    print(new_cluster_id())
    return 0


def format_directories(given: GivenOptions) -> int:
    """All or none: every directory is checked, under its lock, before the first is written."""
    from headrace.core.files import Disk
    from headrace.log.directory import LogDirectory

    cluster_id = given.one("cluster-id")
    if not _CLUSTER_ID.fullmatch(cluster_id):
        raise ToolError(f"--cluster-id {cluster_id!r}: write letters, digits, dots, dashes and underscores only")
    settings = _settings(given)
    for name, reason in _WITHOUT_EFFECT.items():
        if given.has(name):
            print(f"headrace: warning: --{name} has no effect: {reason}", file=sys.stderr)
    directories = [LogDirectory(path, Disk()) for path in settings.log_dirs]
    try:
        for directory in directories:
            directory.open(settings.node_id)
            _check_unformatted(directory, cluster_id, may_be_formatted=given.has("ignore-formatted"))
        fresh = [directory for directory in directories if not directory.cluster_id]
        for directory in fresh:
            print(f"Formatting data directory {directory.path} with cluster.id {cluster_id}.")
            directory.write_meta(cluster_id, settings.node_id)
    finally:
        for directory in directories:
            directory.release()
    if not fresh:
        print("All of the log directories are already formatted.")
    return 0


def _check_unformatted(directory: "LogDirectory", cluster_id: str, *, may_be_formatted: bool) -> None:
    if not directory.cluster_id:
        return
    if directory.cluster_id != cluster_id:
        raise ToolError(
            f"Invalid cluster.id in: {directory.path}/meta.properties. Expected {cluster_id}, but read "
            f"{directory.cluster_id}; give that one, or another directory in log.dirs"
        )
    if not may_be_formatted:
        raise ToolError(
            f"Log directory {directory.path} is already formatted. Use --ignore-formatted to ignore this directory and "
            "format the others."
        )


def info(given: GivenOptions) -> int:
    """Kafka's words; the exit code is 1 where there is a problem."""
    directories = sorted(set(_settings(given).log_dirs))
    found, problems = [], []
    shown: dict[str, str] = {}
    for directory in directories:
        if not os.path.isdir(directory):
            problems.append(f"{directory} {'is not a directory' if os.path.exists(directory) else 'does not exist'}")
            continue
        found.append(directory)
        try:
            read = _meta(directory)
        except (OSError, ValueError) as error:
            problems.append(f"Error loading {directory}/meta.properties: {error}")
            continue
        if not read:
            problems.append(f"{directory} is not formatted.")
        elif not shown:
            shown = read
        elif read["cluster.id"] != shown["cluster.id"]:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif _node_id(read) != _node_id(shown):
            problems.append("Mismatched node IDs between storage directories.")
    if found:
        print("Found log directory:" if len(found) == 1 else "Found log directories:")
        print(*(f"  {directory}" for directory in found), "", sep="\n")
    if shown:
        print(f"Found metadata: {{{', '.join(f'{name}={shown[name]}' for name in sorted(shown))}}}\n")
    if problems:
        print("Found problem:" if len(problems) == 1 else "Found problems:")
        print(*(f"  {problem}" for problem in problems), "", sep="\n")
    return 1 if problems else 0


def _meta(directory: str) -> dict[str, str]:
    """What `meta.properties` says; empty if there is none."""
    from headrace.core.errors import OperatorError
    from headrace.core.properties import parse_properties
    from headrace.log.checkpoints import META_PROPERTIES_FILE, decode_meta_properties, text_of

    path = os.path.join(directory, META_PROPERTIES_FILE)
    try:
        with open(path, "rb") as file:
            text = text_of(file.read(), path)
        decode_meta_properties(text, path)
        return {each.key: each.value for each in parse_properties(text, path)}
    except FileNotFoundError:
        return {}
    except OperatorError as error:
        raise ValueError(str(error)) from error


def _node_id(meta: dict[str, str]) -> str:
    return meta.get("node.id") or meta["broker.id"]  # version 0 called it so


def version_mapping(given: GivenOptions) -> int:
    """The features of a Headrace broker; without KRaft there is no metadata.version that they would follow from."""
    from headrace.broker.handlers.api_versions import FEATURES

    if given.has("release-version"):
        raise ToolError("A Headrace broker has no metadata.version; leave --release-version out to see its features")
    print(*(f"{name}={level}" for name, level in sorted(FEATURES.items(), reverse=True)), sep="\n")
    return 0


def feature_dependencies(given: GivenOptions) -> int:
    from headrace.broker.handlers.api_versions import FEATURES

    for asked in given.all("feature"):
        name, equals, text = asked.partition("=")
        if not equals:
            raise ToolError(
                f"Invalid feature format: {asked}. Expected format: 'feature=version' (e.g. 'group.version=1')"
            )
        if not text.isdecimal():
            raise ToolError(f"Invalid version format: {text} for feature {name}")
        if name not in FEATURES:
            raise ToolError(f"Unknown feature: {name} (a Headrace broker has {', '.join(sorted(FEATURES))})")
        if int(text) > FEATURES[name]:
            raise ToolError(f"Feature level {text} is not supported for feature {name}")
        print(f"{name}={text} has no dependencies.")
    return 0


def _settings(given: GivenOptions) -> "BrokerSettings":
    """As the broker reads them, so that these are its directories. What it warns of, it says when it starts."""
    from headrace.core.properties import read_text
    from headrace.core.settings.broker import BrokerSettings

    path = given.one("config")
    text = read_text(path, "a server.properties file")
    return BrokerSettings.from_sources(properties=text, source=path, environ=os.environ)[0]
