import pytest

from headrace.core.findings import Status, failed
from headrace.core.machine import DiskSpace, PortOwner
from headrace.core.machine_checks import (
    check_disk,
    check_memory,
    check_open_files,
    check_port,
    check_python,
    size,
)

GB = 1 << 30


def disk(free_bytes: int, *, writable: bool = True, executable: bool = True) -> DiskSpace:
    return DiskSpace(path="/data", free_bytes=free_bytes, writable=writable, executable=executable)


@pytest.mark.parametrize(
    ("version", "status"), [((3, 10, 9), Status.FAIL), ((3, 11, 0), Status.OK), ((3, 13, 1), Status.OK)]
)
def test_python_is_new_enough_or_not(version: tuple[int, int, int], status: Status) -> None:
    assert check_python(version, "/python").status is status


def test_a_taken_port_names_who_has_it_and_offers_the_next() -> None:
    finding = check_port(9092, PortOwner(pid=7, command="nginx", speaks_kafka=False))
    assert finding.status is Status.WARN
    assert finding.text == "9092 is taken by pid 7 (nginx), which is not a Kafka broker"
    assert finding.remedy == "headrace up --port 9093"


def test_a_broker_on_the_port_is_fine_and_so_is_nobody() -> None:
    assert check_port(9092, None).status is Status.OK
    finding = check_port(9092, PortOwner(pid=None, command="", speaks_kafka=True))
    assert (finding.status, finding.text) == (Status.OK, "9092: a Kafka broker answers, a process of another user")


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (disk(50 * GB), Status.OK),
        (disk(1 * GB), Status.WARN),
        (disk(1 << 20), Status.FAIL),
        (disk(50 * GB, writable=False), Status.FAIL),
        (disk(50 * GB, executable=False), Status.FAIL),
    ],
)
def test_a_disk_must_be_writable_with_room_and_let_libraries_be_loaded(found: DiskSpace, status: Status) -> None:
    finding = check_disk("scratch", found, setting="export TMPDIR=DIR", must_execute=True)
    assert finding.status is status
    assert ("export TMPDIR=DIR" in finding.remedy) is (status is not Status.OK)


def test_only_scratch_must_let_libraries_be_loaded() -> None:
    assert check_disk("data", disk(50 * GB, executable=False), setting="--data DIR").status is Status.OK


@pytest.mark.parametrize(
    ("soft", "hard", "status", "remedy"),
    [
        (100, 4096, Status.FAIL, "ulimit -n 4096"),
        (1024, -1, Status.WARN, "ulimit -n 65536"),
        (20_000, 20_000, Status.OK, ""),
        (-1, -1, Status.OK, ""),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_can_be(
    soft: int, hard: int, status: Status, remedy: str
) -> None:
    finding = check_open_files(soft, hard)
    assert (finding.status, finding.remedy) == (status, remedy)


@pytest.mark.parametrize(
    ("available", "limit", "status"),
    [
        (8 * GB, 16 * GB, Status.OK),
        (8 * GB, 2 * GB, Status.WARN),
        (GB // 2, 16 * GB, Status.FAIL),
        (None, 16 * GB, Status.OK),
    ],
)
def test_memory_is_what_is_free_within_what_is_allowed(available: int | None, limit: int, status: Status) -> None:
    assert check_memory(available, limit).status is status


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (23 * GB, "23.0 GB"), (3 << 40, "3.0 TB")]
)
def test_sizes_are_written_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_warnings_alone_are_no_failure() -> None:
    warning = check_open_files(1024, -1)
    assert not failed([warning])
    assert failed([warning, check_open_files(1, 1)])
