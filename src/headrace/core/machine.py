"""What the machine offers: memory, disk, open files, who listens on a port. Facts only, and each in milliseconds.

They come from the kernel's own files, and None means that the kernel does not say (another system, no rights).
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

PROBE_WAIT_S = 3.0
_LISTENING = "0A"
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)  # length, API, version, correlation id 7, no client id


def memory_bytes(root: str = "/") -> int:
    """What this process may use: the machine's memory, or what its container is allowed if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (_number(os.path.join(root, path)) for path in _CGROUP_LIMITS)
    return min([machine, *(limit for limit in limits if limit is not None)])


_CGROUP_LIMITS = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_available_bytes(path: str = "/proc/meminfo") -> int | None:
    """What could be had now without swapping."""
    with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _number(path: str) -> int | None:
    with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        return int(file.read())
    return None


def nearest_directory(path: str) -> str:
    """The path, or the nearest directory above it that exists: where it would be made."""
    path = os.path.abspath(path)
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


@dataclass(frozen=True, kw_only=True)
class DiskSpace:
    path: str
    free_bytes: int
    writable: bool
    executable: bool  # whether programs and libraries on it may be run


def disk(path: str) -> DiskSpace:
    where = nearest_directory(path)
    stats = os.statvfs(where)
    return DiskSpace(
        path=where,
        free_bytes=stats.f_bavail * stats.f_frsize,
        writable=os.access(where, os.W_OK | os.X_OK),
        executable=not stats.f_flag & os.ST_NOEXEC,
    )


@dataclass(frozen=True, kw_only=True)
class PortOwner:
    pid: int | None  # None when the process is another user's
    command: str
    speaks_kafka: bool


def listener(host: str, port: int) -> PortOwner | None:
    """Who would answer a connection to the port; None when it is free."""
    if _bindable(host, port):
        return None
    pid = next(iter(_owners(port)), None)
    return PortOwner(pid=pid, command=_command(pid), speaks_kafka=speaks_kafka(host, port))


def _bindable(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def speaks_kafka(host: str, port: int) -> bool:
    """Whether ApiVersions, which every broker answers first of all, is answered."""
    with suppress(OSError), socket.create_connection((host, port), PROBE_WAIT_S) as connection:
        connection.settimeout(PROBE_WAIT_S)
        connection.sendall(_API_VERSIONS)
        answer = connection.recv(8, socket.MSG_WAITALL)
        return len(answer) == 8 and answer[4:] == struct.pack(">i", 7)
    return False


def _owners(port: int) -> Iterator[int]:
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for name in os.listdir("/proc") if sockets else ():
        if name.isdigit():
            with suppress(OSError):
                links = (entry.path for entry in os.scandir(f"/proc/{name}/fd"))
                if any(_link(path) in sockets for path in links):
                    yield int(name)


def _inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table, encoding="ascii") as file:
            for line in list(file)[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _link(path: str) -> str:
    with suppress(OSError):
        return os.readlink(path)
    return ""


def _command(pid: int | None) -> str:
    if pid is not None:
        with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
