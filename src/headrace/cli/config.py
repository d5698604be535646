"""`headrace config`: the settings of topics, brokers and groups, and changing them while the brokers run."""

import difflib
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.lazy_group import CommandEntry, LazyGroup
from headrace.cli.names import complete_group, complete_topic
from headrace.cli.reaching import broker_options, setting_pairs
from headrace.cli.tabling import ask, print_json, yes_option
from headrace.core.errors import OperatorError

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach
    from headrace.client.cluster import ClusterClient
    from headrace.client.topics import DescribedSetting

COMMANDS = {
    "show": CommandEntry("headrace.cli.config:show_command", "Settings that differ from the default, or all."),
    "set": CommandEntry("headrace.cli.config:set_command", "Change settings."),
    "unset": CommandEntry("headrace.cli.config:unset_command", "Back to the default."),
}
KINDS = {"topic": 2, "broker": 4, "group": 32}
SOURCES = {
    1: "topic",
    2: "broker, dynamic",
    3: "all brokers, dynamic",
    4: "broker's file",
    5: "default",
    6: "broker, logger",
    8: "group",
}
ALL_BROKERS = "all"


def _complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    kind = ctx.params.get("kind")
    if kind == "topic":
        return complete_topic(ctx, param, incomplete)
    return complete_group(ctx, param, incomplete) if kind == "group" else []


kind_argument = click.argument("kind", type=click.Choice(tuple(KINDS)))


@click.group(cls=LazyGroup, places=COMMANDS, short_help="Settings of topics, brokers and groups.")
def config() -> None:
    """Settings of a topic (by its name), a broker (by its id, or `all`) or a group."""


@click.command("show", short_help=COMMANDS["show"].help)
@kind_argument
@click.argument("name", required=False, shell_complete=_complete_name)
@click.option("--all", "show_all", is_flag=True, help="Also the settings that have their default.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only this setting; may be given many times.")
@broker_options
def show_command(
    kind: str, name: str | None, show_all: bool, keys: tuple[str, ...], reach: "Reach", as_json: bool
) -> None:
    """The settings that differ from the default, and who set them.

    NAME may be left out for a broker: then it is the one that answers.

    \b
    Examples:
      headrace config show topic orders --all
      headrace config show broker --key log.retention.ms
    """
    with reach.cluster() as cluster:
        subject = _subject(cluster, kind, name)
        settings = _settings(cluster, kind, subject)
        for key in keys:
            if key not in {each.name for each in settings}:
                raise _unknown_key(key, settings)
        found = [each for each in sorted(settings) if (each.name in keys if keys else show_all or not each.is_default)]
        if as_json:
            print_json([_content(each) for each in found])
            return
        if not found:
            click.echo(f"{kind} {subject} has its defaults only; --all shows them", err=True)
            return
        from headrace.cli.columns import show

        rows: list[list[str | None]] = [[each.name, _value(each), _source(each)] for each in found]
        show(["setting", "value", "from"], rows)


@click.command("set", short_help=COMMANDS["set"].help)
@kind_argument
@click.argument("name", shell_complete=_complete_name)
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@broker_options
def set_command(kind: str, name: str, settings: tuple[str, ...], reach: "Reach", as_json: bool) -> None:
    """Change settings while the brokers run.

    \b
    Examples:
      headrace config set topic orders retention.ms=86400000
      headrace config set broker all log.retention.ms=604800000
    """

    with reach.cluster() as cluster:
        changes = setting_pairs(settings, "")
        subject = _subject(cluster, kind, name)
        _change(cluster, kind, subject, changes, ())
        if as_json:
            print_json({"kind": kind, "name": subject, "set": changes})
        else:
            for key, value in changes.items():
                click.echo(f"{kind} {subject}: {key}={value}")


@click.command("unset", short_help=COMMANDS["unset"].help)
@kind_argument
@click.argument("name", shell_complete=_complete_name)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@yes_option
@broker_options
def unset_command(kind: str, name: str, keys: tuple[str, ...], yes: bool, reach: "Reach", as_json: bool) -> None:
    """Take settings back to their default, after a question.

    \b
    Examples:
      headrace config unset topic orders retention.ms
    """
    with reach.cluster() as cluster:
        subject = _subject(cluster, kind, name)
        ask(f"Take {', '.join(keys)} of {kind} {subject} back to the default?", yes)
        _change(cluster, kind, subject, {}, keys)
        if as_json:
            print_json({"kind": kind, "name": subject, "unset": list(keys)})
        else:
            click.echo(f"{kind} {subject}: {', '.join(keys)} as by default")


def _subject(cluster: "ClusterClient", kind: str, name: str | None) -> str:
    from headrace.cli.names import check_topics

    if kind == "broker":
        if name is None:
            cluster.nodes()
            return str(min(cluster.nodes()))
        if name in (ALL_BROKERS, "default"):
            return ALL_BROKERS
        known = [str(node) for node in sorted(cluster.nodes())]
        if name not in known:
            raise OperatorError(f"broker {name} does not exist; there are: {', '.join(known)}, or `all`")
        return name
    if name is None:
        raise click.UsageError(f"say which {kind}: headrace config show {kind} NAME")
    if kind == "topic":
        check_topics(cluster, [name])
    return name


def _resource(kind: str, subject: str) -> str:
    return "" if kind == "broker" and subject == ALL_BROKERS else subject


def _settings(cluster: "ClusterClient", kind: str, subject: str) -> "list[DescribedSetting]":
    from headrace.client.topics import describe_configs

    resource = _resource(kind, subject)
    node = int(resource) if kind == "broker" and resource else None
    return describe_configs(cluster, KINDS[kind], resource, node)


def _change(cluster: "ClusterClient", kind: str, subject: str, changes: dict[str, str], unset: tuple[str, ...]) -> None:
    from headrace.client.errors import KafkaError
    from headrace.client.topic_admin import change_settings

    try:
        change_settings(cluster, KINDS[kind], _resource(kind, subject), changes, unset)
    except KafkaError as error:
        known = _settings(cluster, kind, subject)
        for key in (*changes, *unset):
            if known and key not in {each.name for each in known}:
                raise _unknown_key(key, known) from error
        raise OperatorError(f"{kind} {subject}: {str(error).rstrip('.')}") from error


def _unknown_key(key: str, settings: "list[DescribedSetting]") -> OperatorError:
    near = difflib.get_close_matches(key, [each.name for each in settings], n=1)
    hint = f"did you mean {near[0]}?" if near else "`headrace config show … --all` lists all"
    return OperatorError(f"{key} is not a setting here; {hint}")


def _content(setting: "DescribedSetting") -> dict[str, Any]:
    return {
        "name": setting.name,
        "value": setting.value,
        "source": _source(setting),
        "read_only": setting.read_only,
        "sensitive": setting.sensitive,
    }


def _value(setting: "DescribedSetting") -> str | None:
    return "(hidden)" if setting.sensitive else setting.value


def _source(setting: "DescribedSetting") -> str:
    return SOURCES.get(setting.source, f"source {setting.source}")
