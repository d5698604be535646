"""Names of topics and groups that a person typed: do they exist, what was meant, and completing them in a shell."""

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from headrace.core.errors import OperatorError

if TYPE_CHECKING:
    from headrace.client.cluster import ClusterClient

COMPLETION_MS_MAX = 1_000
_WILD = frozenset("*?[")


def missing_name(kind: str, name: str, known: Iterable[str], remedy: str, also: str = "") -> OperatorError:
    """`also` is said beside what was probably meant."""
    near = near_name(name, known)
    hint = f"did you mean {near}?{also}" if near else remedy
    return OperatorError(f"{kind} {name} does not exist; {hint}")


def near_name(name: str, known: Iterable[str]) -> str | None:
    """What was probably meant."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def is_pattern(name: str) -> bool:
    return bool(_WILD & set(name))


def check_topics(
    cluster: "ClusterClient", names: Sequence[str], remedy: str = "`headrace topic list` shows all"
) -> None:
    from headrace.client.topics import topic_names

    known = topic_names(cluster)
    for name in names:
        if name not in known:
            raise missing_name("topic", name, known, remedy)


def chosen_topics(cluster: "ClusterClient", given: Sequence[str], *, missing_ok: bool = False) -> list[str]:
    """Names, and patterns such as `test-*`, as the names of topics that exist."""
    from headrace.client.topics import topic_names

    return _chosen("topic", topic_names(cluster), given, "`headrace topic list` shows all", missing_ok)


def chosen_groups(cluster: "ClusterClient", given: Sequence[str], *, missing_ok: bool = False) -> list[str]:
    from headrace.client.groups import list_groups

    known = [each.group for each in list_groups(cluster)]
    return _chosen("group", known, given, "`headrace group list` shows all", missing_ok)


def _chosen(kind: str, known: list[str], given: Sequence[str], remedy: str, missing_ok: bool) -> list[str]:
    found: dict[str, None] = {}
    for name in given:
        if name in known:
            found[name] = None
        elif is_pattern(name):
            matches = [each for each in known if fnmatch.fnmatchcase(each, name)]
            if not matches and not missing_ok:
                raise OperatorError(f"no {kind} matches {name!r}; {remedy}")
            found.update(dict.fromkeys(matches))
        elif not missing_ok:
            raise missing_name(kind, name, known, remedy)
    return list(found)


# ── completion ───────────────────────────────────────────────────────────────────────────────────────────────────────


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from headrace.client.topics import topic_names

    return _completed(ctx, incomplete, topic_names)


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from headrace.client.groups import list_groups

    return _completed(ctx, incomplete, lambda cluster: [each.group for each in list_groups(cluster)])


def _completed(ctx: click.Context, incomplete: str, ask: "Ask") -> list[str]:
    """Nothing if no broker answers: a shell that waits for a completion must not wait for long, nor see an error."""
    from headrace.cli.reaching import reach_of

    params = ctx.params
    try:
        pairs = (*(params.get("pairs") or ()), f"default.api.timeout.ms={COMPLETION_MS_MAX}")
        reach = reach_of(params.get("bootstrap") or "127.0.0.1:9092", params.get("client_file"), pairs)
        with reach.cluster() as cluster:
            return [name for name in ask(cluster) if name.startswith(incomplete)]
    except Exception:
        return []


if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[[ClusterClient], list[str]]
