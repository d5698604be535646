"""The commands that change something: create, set, delete, deleteall, setAcl, addauth, addWatch, removewatches."""

import base64
import binascii
from collections import deque
from typing import Final

from headrace.cli.kafka.zookeeper_shell.command import Command, Context, err, out, whole_number
from headrace.cli.kafka.zookeeper_shell.command_line import Given, Option, Options, ShellError
from headrace.cli.kafka.zookeeper_shell.path_check import check_path
from headrace.cli.kafka.zookeeper_shell.printing import stat_lines
from headrace.cli.kafka.zookeeper_shell.reading import children_of, visit
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.acl import OPEN, Acl

TTL_MS_MAX: Final = (1 << 40) - 1
_PERMISSIONS: Final = {
    "r": codes.READ,
    "w": codes.WRITE,
    "c": codes.CREATE_PERMISSION,
    "d": codes.DELETE_PERMISSION,
    "a": codes.ADMIN,
}
_MEANT: Final = {
    "c": codes.WATCHER_CHILDREN,
    "d": codes.WATCHER_DATA,
    "p": codes.WATCHER_PERSISTENT,
    "r": codes.WATCHER_PERSISTENT_RECURSIVE,
    "a": codes.WATCHER_ANY,
}
_MODES: Final = ("PERSISTENT", "PERSISTENT_RECURSIVE")

CREATE = Options(
    {"e": Option("ephemeral"), "s": Option("sequential"), "c": Option("container"), "t": Option("ttl", True)}
)
SET = Options(
    {
        "s": Option("Print znode stats additionally"),
        "v": Option("Set with an expected version", True),
        "b": Option("Supply data in base64 format"),
    }
)
VERSION = Options({"v": Option("version", True)})
BATCH = Options({"b": Option("batch size", True)})
SET_ACL = Options({"s": Option("stats"), "v": Option("version", True), "R": Option("recursive")})
MODE = Options({"m": Option("", True)})
REMOVE = Options(
    {
        "c": Option("child watcher type"),
        "d": Option("data watcher type"),
        "p": Option("persistent watcher type"),
        "r": Option("persistent recursive watcher type"),
        "a": Option("any watcher type"),
        "l": Option("remove locally when there is no server connection"),
    }
)


def parse_acl(text: str) -> list[Acl]:
    """`scheme:id:perm,…`; what is not of that form is said, and left out."""
    found = []
    for part in text.split(","):
        scheme, first, rest = part.partition(":")
        id, last, perms = rest.rpartition(":")
        if not first or not last:
            err(f"{part} does not have the form scheme:id:perm")
            continue
        mask = 0
        for letter in perms:
            if letter in _PERMISSIONS:
                mask |= _PERMISSIONS[letter]
            else:
                err(f"Unknown perm type: {letter}")
        found.append(Acl(mask, scheme, id))
    return found


def create(context: Context, given: Given) -> None:
    flags, ttl_ms = _create_mode(given)
    args = given.args
    data = args[2].encode() if len(args) > 2 else None
    acl = parse_acl(args[3]) if len(args) > 3 else OPEN
    check_path(args[1] + "1" if given.has("s") else args[1])
    try:
        err(f"Created {context.client.create(args[1], data, flags=flags, acl=acl, ttl_ms=ttl_ms)}")
    except ZooKeeperError as error:
        if error.code == codes.INVALID_ACL:
            err(error.java)
        raise


def _create_mode(given: Given) -> tuple[int, int]:
    ephemeral, sequential, container, mortal = (given.has(letter) for letter in "esct")
    if container and (ephemeral or sequential):
        raise ShellError("-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.")
    if not mortal:
        flags = codes.CONTAINER if container else codes.EPHEMERAL * ephemeral + codes.SEQUENTIAL * sequential
        return flags, -1
    try:
        ttl_ms = int(given.options["t"])
    except ValueError:
        raise ShellError("-t argument must be a long value") from None
    if ephemeral:
        raise ShellError("TTLs cannot be used with Ephemeral znodes")
    if container:
        raise ShellError("TTLs cannot be used with Container znodes")
    if not 0 < ttl_ms <= TTL_MS_MAX:
        raise ShellError(f"ttl must be positive and cannot be larger than: {TTL_MS_MAX}")
    return codes.SEQUENTIAL_WITH_TTL if sequential else codes.WITH_TTL, ttl_ms


def version_of(given: Given) -> int:
    return whole_number(given.options["v"]) if given.has("v") else -1


def set_data(context: Context, given: Given) -> None:
    path, text = given.args[1:3]
    data = text.encode()
    if given.has("b"):
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ShellError(f"{text} is not base64: {error}") from None
    version = version_of(given)
    check_path(path)
    stat = context.client.set(path, data, version)
    if given.has("s"):
        out(stat_lines(stat))


def delete(context: Context, given: Given) -> None:
    if len(given.args) > 2:
        err("'delete path [version]' has been deprecated. Please use 'delete [-v version] path' instead.")
    check_path(given.args[1])
    context.client.delete(given.args[1], version_of(given))


def delete_all(context: Context, given: Given) -> None:
    try:
        batch = int(given.options["b"]) if given.has("b") else 1000
    except ValueError:
        raise ShellError("-b argument must be an int value") from None
    path = given.args[1]
    check_path(path)
    found = list(reversed(_breadth_first(context, path)))
    if batch <= 0:
        for each in found:
            context.client.delete(each)
        return
    try:
        for at in range(0, len(found), batch):
            context.client.multi([requests.Delete(each, -1) for each in found[at : at + batch]])
    except ZooKeeperError as error:
        if error.code in (codes.CONNECTION_LOSS, codes.SESSION_EXPIRED):
            raise
        err("Failed to delete some node(s) in the subtree!")


def rmr(context: Context, given: Given) -> None:
    err("The command 'rmr' has been deprecated. Please use 'deleteall' instead.")
    delete_all(context, given)


def _breadth_first(context: Context, path: str) -> list[str]:
    found, waiting = [path], deque([path])
    while waiting:
        here = waiting.popleft()
        below = list(children_of(here, context.client.children(here).names))
        found += below
        waiting += below
    return found


def set_acl(context: Context, given: Given) -> None:
    path, version = given.args[1], version_of(given)
    acl = parse_acl(given.args[2])
    check_path(path)
    if given.has("R"):

        def change(each: str) -> None:
            try:
                context.client.set_acl(each, acl, version)
            except ZooKeeperError as error:
                out(error.java)

        visit(context, path, change)
        return
    stat = context.client.set_acl(path, acl, version)
    if given.has("s"):
        out(stat_lines(stat))


def add_auth(context: Context, given: Given) -> None:
    credentials = given.args[2].encode() if len(given.args) > 2 else b""
    context.client.add_credentials(given.args[1], credentials)


def add_watch(context: Context, given: Given) -> None:
    mode = given.options.get("m", "PERSISTENT_RECURSIVE").upper()
    if mode not in _MODES:
        raise ShellError(ADD_WATCH.usage_text())
    check_path(given.args[1])
    context.client.watch(given.args[1], context.changed, recursive=mode == "PERSISTENT_RECURSIVE")


def remove_watches(context: Context, given: Given) -> None:
    meant = next((_MEANT[letter] for letter in "cdpra" if given.has(letter)), codes.WATCHER_ANY)
    path = given.args[1]
    check_path(path)
    try:
        context.client.unwatch(path, meant)
    except ZooKeeperError as error:
        if not given.has("l") or error.code == codes.NO_WATCHER:
            raise
        if not context.client.forget_watches(path, meant):
            raise ZooKeeperError(codes.NO_WATCHER, path) from None


ADD_WATCH = Command(
    "addWatch",
    "[-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE",
    add_watch,
    MODE,
    args_min=1,
    args_max=1,
)
COMMANDS = (
    Command("create", "[-s] [-e] [-c] [-t ttl] path [data] [acl]", create, CREATE, args_min=1),
    Command("set", "path data [-s] [-v version] [-b]", set_data, SET, args_min=2, explains_options=True),
    Command("delete", "[-v version] path", delete, VERSION, args_min=1),
    Command("deleteall", "path [-b batch size]", delete_all, BATCH, args_min=1),
    Command("rmr", "path", rmr, BATCH, args_min=1, listed=False),
    Command("setAcl", "[-s] [-v version] [-R] path acl", set_acl, SET_ACL, args_min=2),
    Command("addauth", "scheme auth", add_auth, args_min=1),
    Command("removewatches", "path [-c|-d|-a] [-l]", remove_watches, REMOVE, args_min=1),
    ADD_WATCH,
)
