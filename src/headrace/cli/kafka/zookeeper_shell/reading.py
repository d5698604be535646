"""The commands that read: ls, get, stat, getAcl, getEphemerals, getAllChildrenNumber, config, whoami, version, sync."""

import base64
from collections.abc import Callable, Iterator

from headrace import __version__
from headrace.cli.kafka.zookeeper_shell.command import Command, Context, err, out
from headrace.cli.kafka.zookeeper_shell.command_line import Given, Option, Options, ShellError, parse_options
from headrace.cli.kafka.zookeeper_shell.path_check import check_path
from headrace.cli.kafka.zookeeper_shell.printing import acl_line, hex_dump, stat_lines
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.results import Data

ZOOKEEPER_VERSION = "3.9.3"  # whose commands and output these are
Visit = Callable[[str], None]


def with_old_watch(given: Given, options: Options, name: str, instead: str) -> Given:
    """`get path watch`: any third word asks for a watch."""
    if len(given.args) <= 2:
        return given
    err(f"'{name} path [watch]' has been deprecated. Please use '{instead}' instead.")
    letters = [f"-{letter}" for letter in given.options]
    return parse_options(options, [*given.args[:2], "-w", *letters, *given.args[3:]])


LS = Options(
    {"?": Option("help"), "s": Option("stat"), "w": Option("watch"), "R": Option("recurse")},
)
GET = Options(
    {
        "s": Option("Print znode stats additionally"),
        "w": Option("Watch for changes on the znode"),
        "b": Option("Output data in base64 format"),
        "x": Option("Output data in hexdump format"),
    }
)
WATCH = Options({"w": Option("watch")})
STAT = Options({"s": Option("stats")})
CONFIG = Options({"s": Option("stats"), "w": Option("watch"), "c": Option("client connection string")})


def ls(context: Context, given: Given) -> None:
    if given.has("?"):
        out("usage: ls [options] path\n -?   help\n -R   recurse\n -s   stat\n -w   watch\n")
    given = with_old_watch(given, LS, "ls", "ls [-w] path")
    if len(given.args) < 2:
        raise ShellError("ls [-s] [-w] [-R] path")
    path = given.args[1]
    watcher = context.changed if given.has("w") else None
    check_path(path)
    if given.has("R"):
        visit(context, path, lambda each: out(each + "\n"), watch=given.has("w"))
        return
    found = context.client.children(path, watcher)
    out(f"[{', '.join(sorted(found.names))}]\n")
    if given.has("s") and found.stat is not None:
        out(stat_lines(found.stat))


def visit(context: Context, path: str, seen: Visit, *, watch: bool = False) -> None:
    """The node and all below it: a node's children together, then what is below each of them."""
    watcher = context.changed if watch else None
    context.client.get(path, watcher)
    seen(path)
    waiting = [path]
    while waiting:
        here = waiting.pop()
        try:
            names = sorted(context.client.children(here, watcher).names)
        except ZooKeeperError as error:
            if error.code == codes.NO_NODE:
                continue  # it went between being listed and being asked for
            raise
        below = list(children_of(here, names))
        for each in below:
            seen(each)
        waiting.extend(reversed(below))


def children_of(path: str, names: list[str]) -> Iterator[str]:
    prefix = "/" if path == "/" else path + "/"
    return (prefix + name for name in names)


def get(context: Context, given: Given) -> None:
    given = with_old_watch(given, GET, "get", "get [-s] [-w] path")
    check_path(given.args[1])
    found = context.client.get(given.args[1], context.changed if given.has("w") else None)
    data = b"null" if found.data is None else found.data
    if given.has("x"):
        text = hex_dump(data)
    elif given.has("b"):
        text = base64.b64encode(data).decode()
    else:
        text = data.decode("utf-8", "replace")
    out(text + "\n")
    if given.has("s"):
        out(stat_lines(found.stat))


def stat(context: Context, given: Given) -> None:
    given = with_old_watch(given, WATCH, "stat", "stat [-w] path")
    path = given.args[1]
    check_path(path)
    found = context.client.exists(path, context.changed if given.has("w") else None)
    if found is None:
        raise ZooKeeperError(codes.NO_NODE, path)
    out(stat_lines(found))


def get_acl(context: Context, given: Given) -> None:
    check_path(given.args[1])
    found = context.client.acl(given.args[1])
    out("".join(map(acl_line, found.acl)))
    if given.has("s"):
        out(stat_lines(found.stat))


def get_ephemerals(context: Context, given: Given) -> None:
    path = given.args[1] if len(given.args) > 1 else "/"
    check_path(path)
    out(f"[{', '.join(context.client.ephemerals(path))}]\n")


def get_all_children_number(context: Context, given: Given) -> None:
    if len(given.args) < 2:
        raise ShellError("getAllChildrenNumber path")
    check_path(given.args[1])
    out(f"{context.client.count_below(given.args[1])}\n")


def config(context: Context, given: Given) -> None:
    watcher = context.changed if given.has("w") else None
    asked = requests.Read(codes.GET_DATA, "/zookeeper/config", watcher is not None)
    found = context.client.ask(asked, watcher, below_chroot=False)
    if not isinstance(found, Data):
        return
    text = "null" if found.data is None else found.data.decode("utf-8", "replace")
    out((client_connect_string(text) if given.has("c") else text) + "\n")
    if given.has("s"):
        out(stat_lines(found.stat))


def client_connect_string(text: str) -> str:
    """The version of a configuration, and the addresses for clients in it: `server.1=host:port:port:role;port`."""
    version, servers = "", []
    for line in text.splitlines():
        key, _, value = line.strip().partition("=")
        if key == "version":
            version = value
        elif key.startswith("server."):
            ensemble, semicolon, client = value.partition(";")
            if semicolon:
                servers.append(client if ":" in client else f"{ensemble.partition(':')[0]}:{client}")
    return f"{version} {','.join(servers)}"


def who_am_i(context: Context, _: Given) -> None:
    found = context.client.who_am_i()
    out("Auth scheme: User\n" + "".join(f"{each.scheme}: {each.id}\n" for each in found))


def version(_: Context, __: Given) -> None:
    out(f"ZooKeeper CLI version: {ZOOKEEPER_VERSION} (Headrace {__version__})\n")


def sync(context: Context, given: Given) -> None:
    check_path(given.args[1])
    try:
        context.client.sync(given.args[1])
    except ZooKeeperError as error:
        out(f"Sync has failed. rc={error.code}\n")
        return
    out("Sync is OK\n")


COMMANDS = (
    Command("ls", "[-s] [-w] [-R] path", ls, LS),
    Command("get", "[-s] [-w] [-b] [-x] path", get, GET, args_min=1, explains_options=True),
    Command("stat", "[-w] path", stat, WATCH, args_min=1),
    Command("getAcl", "[-s] path", get_acl, STAT, args_min=1),
    Command("getEphemerals", "path", get_ephemerals),
    Command("getAllChildrenNumber", "path", get_all_children_number),
    Command("config", "[-c] [-w] [-s]", config, CONFIG),
    Command("whoami", "", who_am_i, parses=False),
    Command("version", "", version, args_max=0),
    Command("sync", "path", sync, args_min=1),
)
