"""setquota, listquota, delquota: limits of a node, kept below /zookeeper/quota, where servers look for them.

Of a quota's two nodes one holds the limits, the other what is used; both as `count=N,bytes=N=;byteHardLimit=N;…`.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from headrace.cli.kafka.zookeeper_shell.command import Command, Context, err, out
from headrace.cli.kafka.zookeeper_shell.command_line import Given, Option, Options, ShellError
from headrace.cli.kafka.zookeeper_shell.path_check import check_path
from headrace.cli.kafka.zookeeper_shell.reading import visit
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.protocol.zookeeper import codes, paths

ROOT: Final = "/zookeeper/quota"
LIMITS: Final = "zookeeper_limits"
USED: Final = "zookeeper_stats"
_KEYS: Final = {"n": "count", "b": "bytes", "N": "countHardLimit", "B": "byteHardLimit"}

_ABOUT: Final = {
    "n": "num soft quota",
    "b": "bytes soft quota",
    "N": "num hard quota",
    "B": "bytes hard quota",
}
SET = Options({letter: Option(about, True) for letter, about in _ABOUT.items()}, one_of="nbNB", required=True)
DELETE = Options({letter: Option(about) for letter, about in _ABOUT.items()}, one_of="nbNB")

Track = dict[str, int]


def read_track(data: bytes | None) -> Track:
    track: Track = {}
    for pair in re.split("[,;]+", (data or b"").decode()):
        key, _, value = pair.partition("=")
        if key:
            track[key] = int(value.partition("=")[0] or "-1")
    return track


def track_text(track: Track) -> str:
    text = f"count={track.get('count', -1)},bytes={track.get('bytes', -1)}"
    more = sorted(key for key in track if key not in ("count", "bytes"))
    return text + "=" + "".join(f";{key}={track[key]}" for key in more) if more else text


def set_quota(context: Context, given: Given) -> None:
    path = given.args[1]
    if path.startswith(ROOT):
        err(f"cannot set a quota under the path: {ROOT}")
        return
    limit = _limit_of(given)
    if limit is None:
        return
    check_path(path)
    if context.client.exists(path) is None:
        raise ShellError(f"{path} does not exist.")
    _refuse_nested(context, path)
    _store(context, path, limit)


def _limit_of(given: Given) -> Track | None:
    """One of the four is given; None: it was said what is wrong with it."""
    letter = next(letter for letter in _KEYS if given.has(letter))
    try:
        value = int(given.options[letter])
    except ValueError:
        err("NumberFormatException happens when parsing the option value")
        return None
    if letter in "nN" and value <= 0:
        err("the num quota must be greater than zero")
        return None
    if value < 0:
        err("the bytes quota must be greater than or equal to zero")
        return None
    return {_KEYS[letter]: value}


def _refuse_nested(context: Context, path: str) -> None:
    """Neither a node below nor one above may have a quota."""
    own = ROOT + path

    def look(each: str) -> None:
        if each != own and LIMITS in _names(context, each):
            raise ShellError(f"{path} has a child {each[len(ROOT) :]} which has a quota")

    with _unless(codes.NO_NODE):
        visit(context, own, look)
    above = ROOT
    for name in path.split("/")[1:-1]:
        above += "/" + name
        names = _names(context, above)
        if not names:
            return
        if LIMITS in names:
            raise ShellError(f"{path} has a parent {above[len(ROOT) :]} which has a quota")


def _names(context: Context, path: str) -> list[str]:
    with _unless(codes.NO_NODE):
        return context.client.children(path).names
    return []


def _store(context: Context, path: str, limit: Track) -> None:
    client, here = context.client, ROOT
    for name in path.split("/")[1:]:
        here += "/" + name
        if client.exists(here) is None:
            with _unless(codes.NODE_EXISTS):
                client.create(here, None)
    limits, used = f"{here}/{LIMITS}", f"{here}/{USED}"
    if client.exists(limits) is None:
        everything = dict.fromkeys(_KEYS.values(), -1) | limit
        client.create(limits, track_text(everything).encode())
        client.create(used, b"count=0,bytes=0")
        _warn(everything, read_track(client.get(used).data))
        return
    everything = read_track(client.get(limits).data) | limit
    _warn(everything, read_track(client.get(used).data))
    client.set(limits, track_text(everything).encode())


def _warn(limits: Track, used: Track) -> None:
    for soft, hard, what in (("count", "countHardLimit", "count"), ("bytes", "byteHardLimit", "bytes")):
        now = used.get(what, -1)
        if any(-1 < limits.get(key, -1) < now for key in (soft, hard)):
            out(f"[Warning]: the {what} quota you create is less than the existing {what}:{now}\n")


def list_quota(context: Context, given: Given) -> None:
    path = given.args[1]
    err(f"absolute path is {ROOT}{path}/{LIMITS}")
    check_path(f"{ROOT}{path}/{LIMITS}")
    try:
        out(f"Output quota for {path} {track_text(read_track(context.client.get(f'{ROOT}{path}/{LIMITS}').data))}\n")
        out(f"Output stat for {path} {track_text(read_track(context.client.get(f'{ROOT}{path}/{USED}').data))}\n")
    except ZooKeeperError as error:
        if error.code != codes.NO_NODE:
            raise
        err(f"quota for {path} does not exist.")


def delete_quota(context: Context, given: Given) -> None:
    path, client = given.args[1], context.client
    here = ROOT + path
    check_path(f"{here}/{LIMITS}")
    if client.exists(f"{here}/{LIMITS}") is None:
        out(f"Quota does not exist for {path}\n")
        return
    if given.options:
        limits = read_track(client.get(f"{here}/{LIMITS}").data)
        limits |= {_KEYS[letter]: -1 for letter in given.options}
        client.set(f"{here}/{LIMITS}", track_text(limits).encode())
        return
    for name in client.children(here).names:
        client.delete(f"{here}/{name}")
    while here != ROOT and not client.children(here).names:
        client.delete(here)
        here = paths.parent(here)


@contextlib.contextmanager
def _unless(code: int) -> Iterator[None]:
    """This error of a server is none here."""
    try:
        yield
    except ZooKeeperError as error:
        if error.code != code:
            raise


COMMANDS = (
    Command("setquota", "-n|-b|-N|-B val path", set_quota, SET, args_min=1),
    Command("listquota", "path", list_quota, args_min=1),
    Command("delquota", "[-n|-b|-N|-B] path", delete_quota, DELETE, args_min=1),
)
