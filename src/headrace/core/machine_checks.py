"""Whether this machine will do: Python, the port, the disks, open files, memory. Facts in, findings out; no IO."""

from headrace.core.findings import Finding, fail, ok, warn
from headrace.core.machine import DiskSpace, PortOwner

PYTHON_MIN = (3, 11)
DISK_FREE_BYTES_MIN = 256 << 20
DISK_FREE_BYTES_GOOD = 2 << 30
OPEN_FILES_MIN = 256
OPEN_FILES_GOOD = 4096
MEMORY_BYTES_MIN = 1 << 30
MEMORY_BYTES_GOOD = 3 << 30
_COMMAND_SHOWN_MAX = 60


def check_python(version: tuple[int, int, int], executable: str) -> Finding:
    text = f"{'.'.join(map(str, version))} at {executable}"
    if version[:2] < PYTHON_MIN:
        least = ".".join(map(str, PYTHON_MIN))
        return fail("python", f"{text}, but {least} or newer is needed", f"python{least} -m venv .venv")
    return ok("python", text)


def check_port(port: int, listener: PortOwner | None) -> Finding:
    """A broker that answers is as good as a free port: it may well be the user's own."""
    if listener is None:
        return ok("port", f"{port} is free")
    command = listener.command[:_COMMAND_SHOWN_MAX]
    who = f"pid {listener.pid} ({command})" if listener.pid is not None else "a process of another user"
    if listener.speaks_kafka:
        return ok("port", f"{port}: a Kafka broker answers, {who}")
    return warn("port", f"{port} is taken by {who}, which is not a Kafka broker", f"headrace up --port {port + 1}")


def check_disk(what: str, disk: DiskSpace, *, setting: str, must_execute: bool = False) -> Finding:
    """`setting` is how to say another directory."""
    subject = f"disk: {what}"
    free = f"{disk.path} has {size(disk.free_bytes)} free"
    if not disk.writable:
        return fail(subject, f"{disk.path} is not writable", f"chown or chmod it, or {setting}")
    if must_execute and not disk.executable:
        return fail(subject, f"{disk.path} is mounted noexec, and RocksDB cannot be loaded from there", setting)
    if disk.free_bytes < DISK_FREE_BYTES_MIN:
        return fail(subject, f"{free}, {size(DISK_FREE_BYTES_MIN)} is the least", f"make room, or {setting}")
    if disk.free_bytes < DISK_FREE_BYTES_GOOD:
        return warn(subject, f"{free}, {size(DISK_FREE_BYTES_GOOD)} is recommended", f"make room, or {setting}")
    return ok(subject, free)


def check_open_files(soft: int, hard: int) -> Finding:
    """-1 is unlimited."""
    text = f"{soft if soft >= 0 else 'any number of'} may be open"
    remedy = f"ulimit -n {65536 if hard < 0 else min(hard, 65536)}"
    if 0 <= soft < OPEN_FILES_MIN:
        return fail("open files", f"{text}, {OPEN_FILES_MIN} is the least", remedy)
    if 0 <= soft < OPEN_FILES_GOOD:
        return warn("open files", f"{text}, {OPEN_FILES_GOOD} is recommended for many partitions", remedy)
    return ok("open files", text)


def check_memory(available_bytes: int | None, limit_bytes: int) -> Finding:
    free = limit_bytes if available_bytes is None else min(available_bytes, limit_bytes)
    text = f"{size(free)} available of {size(limit_bytes)}"
    remedy = "end other programs, or run Spark elsewhere: headrace pipeline run --master spark://HOST:PORT"
    if free < MEMORY_BYTES_MIN:
        return fail("memory", f"{text}, Spark needs {size(MEMORY_BYTES_MIN)}", remedy)
    if free < MEMORY_BYTES_GOOD:
        return warn("memory", f"{text}, {size(MEMORY_BYTES_GOOD)} is recommended for Spark", remedy)
    return ok("memory", text)


def size(count: int) -> str:
    """`23.4 GB`, in powers of 1024."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"
