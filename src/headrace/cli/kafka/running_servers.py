"""The brokers and keepers that run on this machine, as the kernel shows them under /proc.

A process counts only if it belongs to this user, runs in this container, was started by a command that starts such a
server, and holds the lock of a data directory. A program that embeds one (`headrace.Broker`), one that another program
started for itself (`python -m headrace.cli.main`), another user's, and an editor with `headrace up` in its command line
never count: whoever asks here is about to send a signal.
"""

import errno
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PROC = "/proc"
_INTERPRETERS = ("python", "pypy")
_OPTIONS_WITH_VALUE = ("-X", "-W")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of server, and what starts one in a process of its own."""

    name: str
    script: str  # in the foreground
    module: str  # what the script's -daemon runs
    commands: tuple[str, ...]  # of `headrace`


BROKER = Kind(
    name="broker",
    script="kafka-server-start.sh",
    module="headrace.cli.kafka.server_start",
    commands=("up", "broker"),
)
KEEPER = Kind(
    name="keeper",
    script="zookeeper-server-start.sh",
    module="headrace.cli.kafka.zookeeper_start",
    commands=("keeper",),  # those of its commands that only look hold no lock
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    kind: Kind
    pid: int
    directories: tuple[str, ...]
    node_id: int | None = None  # None: it has no meta.properties, or they cannot be read

    def __str__(self) -> str:
        node = "" if self.node_id is None else f"node.id {self.node_id}, "
        return f"pid {self.pid} ({node}data in {', '.join(self.directories)})"


def running_servers(kind: Kind, proc: str = PROC) -> list[RunningServer]:
    pids = sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    return [found for pid in pids if (found := server_at(pid, kind, proc)) is not None]


def server_at(pid: int, kind: Kind, proc: str = PROC) -> RunningServer | None:
    """The server of this kind with this pid, or None where the process is anything else."""
    own = f"{proc}/{pid}"
    try:
        if os.stat(own).st_uid != os.geteuid() or os.readlink(f"{own}/ns/pid") != os.readlink(f"{proc}/self/ns/pid"):
            return None
        with open(f"{own}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").rstrip("\0").split("\0")
        if not os.path.basename(os.readlink(f"{own}/exe")).startswith(_INTERPRETERS) or not starts(kind, words):
            return None
        directories = tuple(sorted(_locked_directories(f"{own}/fd")))
    except OSError:  # it has ended meanwhile, or the kernel does not show it to us
        return None
    if not directories:
        return None
    return RunningServer(kind=kind, pid=pid, directories=directories, node_id=_node_id(f"{own}/root", directories))


def starts(kind: Kind, words: Sequence[str]) -> bool:
    """Whether a command line is Python with one of the commands that start such a server."""
    waiting = list(reversed(words[1:]))
    while waiting:
        word = waiting.pop()
        if word == "-m":
            return waiting[-1:] == [kind.module]
        if word in _OPTIONS_WITH_VALUE:
            del waiting[-1:]
        elif not word.startswith("-"):
            name = os.path.basename(word)
            return name == kind.script or (name == "headrace" and (waiting[-1:] or [""])[0] in kind.commands)
    return False


def send(server: RunningServer, number: int, proc: str = PROC) -> bool:
    """Sends a signal; False if the server has ended meanwhile. The process that had its pid when it was found is the
    only one that can get it."""
    handle = -1
    try:
        handle = os.pidfd_open(server.pid)
    except OSError as error:
        if error.errno != errno.ENOSYS:  # kernels before 5.3 have no such handles
            return False
    try:
        if server_at(server.pid, server.kind, proc) != server:
            return False
        if handle < 0:
            os.kill(server.pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def _locked_directories(descriptors: str) -> Iterator[str]:
    for name in os.listdir(descriptors):
        try:
            path = os.readlink(f"{descriptors}/{name}").removesuffix(" (deleted)")
        except OSError:
            continue
        if os.path.basename(path) == ".lock":
            yield os.path.dirname(path)


def _node_id(root: str, directories: Sequence[str]) -> int | None:
    from headrace.core.errors import OperatorError
    from headrace.log.checkpoints import META_PROPERTIES_FILE, decode_meta_properties

    for directory in directories:
        path = f"{root}{directory}/{META_PROPERTIES_FILE}"
        try:
            with open(path, encoding="utf-8") as file:
                return decode_meta_properties(file.read(), path).node_id
        except (OSError, ValueError, OperatorError):
            continue
    return None
