"""The brokers that run on this machine, as the kernel shows them under /proc.

A process counts only if it belongs to this user, runs in this container, was started by a command that starts a
broker, and holds the lock of a log directory. A program that embeds a broker (`headrace.Broker`), a broker that another
program started for itself (`python -m headrace.cli.main`), another user's broker, and an editor with `headrace up` in
its command line never count: whoever asks here is about to send a signal.
"""

import errno
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PROC = "/proc"
SCRIPTS = ("headrace", "kafka-server-start.sh")
BACKGROUND_MODULE = "headrace.cli.kafka.server_start"  # what `kafka-server-start.sh -daemon` runs
SERVING_COMMANDS = ("up", "broker")  # of `headrace`
_INTERPRETERS = ("python", "pypy")
_OPTIONS_WITH_VALUE = ("-X", "-W")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    pid: int
    directories: tuple[str, ...]
    node_id: int | None  # None: its meta.properties cannot be read

    def __str__(self) -> str:
        node = "" if self.node_id is None else f"node.id {self.node_id}, "
        return f"pid {self.pid} ({node}data in {', '.join(self.directories)})"


def running_brokers(proc: str = PROC) -> list[RunningBroker]:
    pids = sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    return [found for pid in pids if (found := broker_at(pid, proc)) is not None]


def broker_at(pid: int, proc: str = PROC) -> RunningBroker | None:
    """The broker with this pid, or None where the process is anything else."""
    own = f"{proc}/{pid}"
    try:
        if os.stat(own).st_uid != os.geteuid() or os.readlink(f"{own}/ns/pid") != os.readlink(f"{proc}/self/ns/pid"):
            return None
        with open(f"{own}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").rstrip("\0").split("\0")
        if not os.path.basename(os.readlink(f"{own}/exe")).startswith(_INTERPRETERS) or not starts_a_broker(words):
            return None
        directories = tuple(sorted(_locked_directories(f"{own}/fd")))
    except OSError:  # it has ended meanwhile, or the kernel does not show it to us
        return None
    if not directories:
        return None
    return RunningBroker(pid=pid, directories=directories, node_id=_node_id(f"{own}/root", directories))


def starts_a_broker(words: Sequence[str]) -> bool:
    """Whether a command line is Python with one of the commands that start a broker."""
    waiting = list(reversed(words[1:]))
    while waiting:
        word = waiting.pop()
        if word == "-m":
            return waiting[-1:] == [BACKGROUND_MODULE]
        if word in _OPTIONS_WITH_VALUE:
            del waiting[-1:]
        elif not word.startswith("-"):
            name = os.path.basename(word)
            return name in SCRIPTS and (name != "headrace" or (waiting[-1:] or [""])[0] in SERVING_COMMANDS)
    return False


def send(broker: RunningBroker, number: int, proc: str = PROC) -> bool:
    """Sends a signal; False if the broker has ended meanwhile. The process that had its pid when it was found is the
    only one that can get it."""
    handle = -1
    try:
        handle = os.pidfd_open(broker.pid)
    except OSError as error:
        if error.errno != errno.ENOSYS:  # kernels before 5.3 have no such handles
            return False
    try:
        if broker_at(broker.pid, proc) != broker:
            return False
        if handle < 0:
            os.kill(broker.pid, number)
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
