"""Every kind of file, damaged in every way, after a clean stop and after a kill.

Whatever happens, a record is read as it was written, or its offset is named in the log, in the metrics and in /health;
no answer below the end is empty; no offset is given twice that was flushed; and a broker that does not start says which
file is to blame.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

import pytest
from corruption import (
    FIRST_MS,
    Files,
    Outcome,
    Template,
    append,
    empty,
    flip,
    garbage,
    overwrite,
    start_and_read,
    write,
    write_template,
)
from faulty_disk import FaultyDisk

LENGTH, BASE, MAGIC, PAYLOAD = 10, 6, 16, 300  # bytes of a batch, from its first one


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return write_template(str(tmp_path_factory.mktemp("template")))


class Case(NamedTuple):
    damage: Callable[[Files], object]
    clean: str = ""  # what must be in the log after a clean stop, one part per line
    killed: str = ""
    loses: bool = False  # records may be missing, if they are named
    refuses: str = ""  # the broker does not start, and this is in its message
    refuses_killed: str = ""
    unflushed: bool = False  # after a kill, what was never flushed is gone without a trace: nobody can know of it


def batch_at(files: Files, segment: int, number: int) -> tuple[str, int]:
    path = files.log(segment)
    return path, files.positions(path)[number]


def flip_in(segment: int, number: int, byte: int, mask: int = 0x41) -> Callable[[Files], object]:
    def damage(files: Files) -> None:
        path, position = batch_at(files, segment, number)
        flip(path, position + byte, mask)

    return damage


def cut_at_batch(files: Files, segment: int, number: int, more: int = 0) -> None:
    path, position = batch_at(files, segment, number)
    os.truncate(path, position + more)


def drop_all_segments(files: Files) -> None:
    for path in files.all("0*.*"):
        os.unlink(path)


def drop_segment(files: Files, at: int) -> None:
    stem = files.log(at)[:-4]
    for path in files.all(os.path.basename(stem) + ".*"):
        if not path.endswith(".snapshot"):
            os.unlink(path)


def each(pattern: str, do: Callable[[str], object]) -> Callable[[Files], object]:
    def damage(files: Files) -> None:
        found = files.all(pattern)
        assert found, f"there is no {pattern}"
        for path in found:
            do(path)

    return damage


def index(at: int, suffix: str, do: Callable[[str], object]) -> Callable[[Files], object]:
    return lambda files: do(files.beside(at, suffix))


def garbage_or_new(path: str) -> None:
    """A small active segment has no index before it is closed."""
    if not os.path.exists(path):
        write(path, bytes(120))
    garbage(path)


def root(name: str, do: Callable[[str], object]) -> Callable[[Files], object]:
    return lambda files: do(files.root(name))


def start_beyond_the_end(files: Files) -> None:
    write(files.root("log-start-offset-checkpoint"), b"0\n1\norders 0 500000\n")


CHANGED = "changed since it was closed: {}"
LOST, DAMAGED = "records are lost", "damaged batch"
SEGMENT, ACTIVE = 1, -1
START = "log-start-offset-checkpoint"

CASES = {
    # the active segment
    "active log emptied": Case(lambda f: empty(f.log(-1)), f"0 bytes, expected\n{LOST}", LOST, True, unflushed=True),
    "active log cut in mid-batch": Case(
        lambda f: os.truncate(f.log(-1), os.path.getsize(f.log(-1)) - 100), f"cut at byte\n{LOST}", "cut at byte", True
    ),
    "active log cut between batches": Case(
        lambda f: cut_at_batch(f, -1, -1), f"expected\n{LOST}", "", True, unflushed=True
    ),
    "active log with garbage behind": Case(
        lambda f: append(f.log(-1), b"garbage" * 99), "expected\ncut at byte", "cut at byte"
    ),
    "active log with zeros behind": Case(lambda f: append(f.log(-1), bytes(5000)), "cut at byte", "cut at byte"),
    "active log with half a header behind": Case(lambda f: append(f.log(-1), bytes(30)), "cut at byte", "cut at byte"),
    "active log missing": Case(
        lambda f: os.unlink(f.log(-1)), f"missing, expected\n{LOST}", LOST, True, unflushed=True
    ),
    "active log, length flipped": Case(flip_in(-1, 1, LENGTH), loses=True),
    "active log, payload flipped": Case(flip_in(-1, 1, PAYLOAD), loses=True),
    "active log, base offset flipped": Case(flip_in(-1, 1, BASE), loses=True),
    "active log, magic flipped": Case(flip_in(-1, 1, MAGIC), loses=True),
    "last batch, payload flipped": Case(flip_in(-1, -1, PAYLOAD), LOST, "cut at byte", True),
    "last batch, length flipped": Case(flip_in(-1, -1, LENGTH), LOST, "cut at byte", True),
    # a sealed segment
    "sealed log emptied": Case(lambda f: empty(f.log(SEGMENT)), f"0 bytes, expected\n{LOST}", LOST, True),
    "sealed log cut in mid-batch": Case(lambda f: cut_at_batch(f, SEGMENT, 5, 100), DAMAGED, DAMAGED, True),
    "sealed log cut between batches": Case(lambda f: cut_at_batch(f, SEGMENT, 5), LOST, LOST, True),
    "sealed log with garbage behind": Case(lambda f: append(f.log(SEGMENT), b"x" * 500), DAMAGED, DAMAGED),
    "sealed log missing": Case(lambda f: drop_segment(f, SEGMENT), f"missing, expected\n{LOST}", LOST, True),
    "first log missing": Case(lambda f: drop_segment(f, 0), f"missing, expected\n{LOST}", LOST, True),
    "all logs missing": Case(drop_all_segments, LOST, LOST, True, unflushed=True),
    "sealed log under a wrong name": Case(
        lambda f: os.rename(f.log(SEGMENT), os.path.join(f.partition, "junk.log")), "junk.log is ignored", LOST, True
    ),
    "sealed log, length flipped": Case(flip_in(SEGMENT, 5, LENGTH), DAMAGED, DAMAGED, True),
    "sealed log, length far too large": Case(flip_in(SEGMENT, 5, 8, 0x7F), DAMAGED, DAMAGED, True),
    "sealed log, length negative": Case(flip_in(SEGMENT, 5, 8, 0x80), DAMAGED, DAMAGED, True),
    "sealed log, payload flipped": Case(flip_in(SEGMENT, 5, PAYLOAD), DAMAGED, DAMAGED, True),
    "sealed log, base offset flipped": Case(flip_in(SEGMENT, 5, BASE), DAMAGED, DAMAGED, True),
    "sealed log, base offset negative": Case(flip_in(SEGMENT, 5, 0, 0x80), DAMAGED, DAMAGED, True),
    "sealed log, magic flipped": Case(flip_in(SEGMENT, 5, MAGIC), DAMAGED, DAMAGED, True),
    "sealed log, first batch flipped": Case(flip_in(SEGMENT, 0, LENGTH), DAMAGED, DAMAGED, True),
    "sealed log, last batch flipped": Case(flip_in(SEGMENT, -1, LENGTH), DAMAGED, DAMAGED, True),
    "sealed log, a page of zeros": Case(lambda f: overwrite(f.log(SEGMENT), bytes(4096), 8192), DAMAGED, DAMAGED, True),
    "sealed log, nothing but garbage": Case(lambda f: garbage(f.log(SEGMENT)), DAMAGED, DAMAGED, True),
    "stray segment": Case(
        lambda f: shutil.copy(f.log(SEGMENT), os.path.join(f.partition, f"{900_000:020d}.log")),
        "set aside",
        "set aside",
    ),
    # indexes
    "index garbage": Case(index(SEGMENT, ".index", garbage), ".index: \nrebuilt", "rebuilt"),
    "index emptied": Case(index(SEGMENT, ".index", empty), "0 bytes, expected"),
    "index missing": Case(index(SEGMENT, ".index", os.unlink), "missing, expected"),
    "index of an odd size": Case(index(SEGMENT, ".index", lambda p: os.truncate(p, 11)), "11 bytes, expected"),
    "index with bytes behind": Case(index(SEGMENT, ".index", lambda p: append(p, bytes(80))), ", expected", "rebuilt"),
    "active index garbage": Case(index(ACTIVE, ".index", garbage_or_new), "not those that were written"),
    "time index garbage": Case(index(SEGMENT, ".timeindex", garbage), "not those that were written"),
    "time index emptied": Case(index(SEGMENT, ".timeindex", empty), "0 bytes, expected"),
    "time index missing": Case(index(SEGMENT, ".timeindex", os.unlink), "missing, expected"),
    "active time index garbage": Case(index(ACTIVE, ".timeindex", garbage_or_new), "not those that were written"),
    "all indexes garbage": Case(each("*index", garbage), "rebuilt"),
    "all indexes missing": Case(each("*.*index", os.unlink), "missing, expected"),
    # what lies beside the segments
    "snapshot garbage": Case(each("*.snapshot", garbage), "made again from the log", "made again from the log"),
    "snapshot emptied": Case(each("*.snapshot", empty), "made again from the log", "made again from the log"),
    "snapshot missing": Case(each("*.snapshot", os.unlink), ".snapshot: missing"),
    "leader epochs garbage": Case(each("leader-epoch*", garbage), "will be replaced", "will be replaced"),
    "leader epochs emptied": Case(each("leader-epoch*", empty)),
    "leader epochs missing": Case(each("leader-epoch*", os.unlink)),
    "partition metadata missing": Case(each("partition.metadata", os.unlink)),
    # what lies in the directory
    "start beyond the end": Case(start_beyond_the_end, "beyond its end", "beyond its end"),
    "start offsets garbage": Case(root(START, garbage), refuses=START, refuses_killed=START),
    "recovery points missing": Case(root("recovery-point-offset-checkpoint", os.unlink)),
    "recovery points garbage": Case(
        root("recovery-point-offset-checkpoint", garbage), refuses="recovery-point", refuses_killed="recovery-point"
    ),
    "high watermarks garbage": Case(root("replication-offset-checkpoint", garbage), "replication", "replication"),
    "meta.properties garbage": Case(
        root("meta.properties", garbage), refuses="meta.properties", refuses_killed="meta.properties"
    ),
    "partition missing": Case(lambda f: shutil.rmtree(f.partition), LOST, loses=True),
}


def outcome_of(case: Case, template: Template, tmp_path: object, how: str) -> Outcome:
    data = os.path.join(str(tmp_path), "data")
    shutil.copytree(template.clean if how == "clean" else template.killed, data)
    case.damage(Files(data))
    return start_and_read(template, data)


@pytest.mark.parametrize("how", ["clean", "killed"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_lost_in_silence(template: Template, tmp_path: object, name: str, how: str) -> None:
    case = CASES[name]
    if name == "partition missing" and how == "killed":
        pytest.skip("after a kill, a partition that has no directory cannot be told from one that was never written to")
    outcome = outcome_of(case, template, tmp_path, how)
    refuses = case.refuses if how == "clean" else case.refuses_killed
    if refuses:
        assert refuses in outcome.refusal, "the message names the file"
        assert "; " in outcome.refusal, "and says what to do"
        return
    assert not outcome.refusal
    wrong = [offset for offset, value in outcome.found.items() if template.values.get(offset) != value]
    assert not wrong, "what is read is what was written"
    unnamed = outcome.unnamed(template)
    if case.unflushed and how == "killed":
        unnamed = [offset for offset in unnamed if offset < template.flushed]
    assert unnamed == [], f"gone, and not named:\n{outcome.lines}"
    if not case.loses:
        assert outcome.missing(template) == [], outcome.lines
        assert outcome.times == {FIRST_MS + 1: 1, FIRST_MS + 100: 100}, outcome.lines
        assert outcome.aborted == template.aborted, outcome.lines
    known = template.end if how == "clean" else template.flushed
    assert outcome.next_offset >= known, "an offset that was flushed is not given again"
    for part in filter(None, (case.clean if how == "clean" else case.killed).split("\n")):
        assert part.strip() in outcome.lines, f"{part!r} is not in the log:\n{outcome.lines}"
    if outcome.refused or (outcome.missing(template) and not (case.unflushed and how == "killed")):
        assert outcome.health or "cut at byte" in outcome.lines, "the damage shows in /health"


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_what_is_not_damaged_is_not_complained_of(template: Template, tmp_path: object, how: str) -> None:
    outcome = outcome_of(Case(lambda files: None), template, tmp_path, how)
    assert (outcome.lines, outcome.health, outcome.missing(template)) == ("", [], [])
    assert outcome.next_offset == template.end


@pytest.mark.parametrize("how", ["clean", "killed"])
@pytest.mark.parametrize("part", [".log", ".index", ".snapshot"])
def test_a_file_that_may_not_be_opened_is_named(template: Template, tmp_path: object, how: str, part: str) -> None:
    """Permissions mean nothing to root, who often runs tests: the disk says it instead."""
    data = os.path.join(str(tmp_path), "data")
    shutil.copytree(template.clean if how == "clean" else template.killed, data)
    disk = FaultyDisk()
    disk.fail(part, on=("open",), code=errno.EACCES)
    outcome = start_and_read(template, data, disk)
    assert data in outcome.refusal
    assert "ermission denied" in outcome.refusal


def test_the_damage_that_one_start_found_is_not_worse_after_the_next(template: Template, tmp_path: object) -> None:
    data = os.path.join(str(tmp_path), "data")
    shutil.copytree(template.clean, data)
    CASES["sealed log, payload flipped"].damage(Files(data))
    CASES["active log cut in mid-batch"].damage(Files(data))
    first = start_and_read(template, data)
    again = start_and_read(template, data)
    assert again.missing(template) == first.missing(template)
    assert again.next_offset == first.next_offset + 1
    assert again.refused == first.refused
