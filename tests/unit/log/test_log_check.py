"""`headrace log check | repair` on a directory whose broker is stopped."""

import glob
import json
import os

import pytest
from click.testing import CliRunner
from harness import Bench, batch, offsets_of

from headrace.cli.main import headrace
from headrace.core.files import Disk
from headrace.protocol.batch import HEADER


@pytest.fixture
def stopped(tmp_path):
    """Three segments, closed cleanly."""
    bench = Bench(tmp_path / "a")
    log = bench.create(segment_bytes=8000, index_interval_bytes=400)
    bench.append(log, *[batch(2, size=200, producer=5, sequence=2 * i) for i in range(40)])
    bench.store.directories[0].write_meta("cluster", 1)
    bench.stop()
    return bench


def run(*arguments):
    result = CliRunner().invoke(headrace, ["log", *arguments], standalone_mode=True)
    return result.exit_code, result.output


def segment(bench, at):
    return sorted(glob.glob(os.path.join(bench.paths[0], "t-0", "*.log")))[at]


def batch_positions(path):
    with open(path, "rb") as file:
        data = file.read()
    found, at = [], 0
    while at < len(data):
        found.append(at)
        at += 12 + HEADER.unpack_from(data, at)[1]
    return found


def overwrite(path, position, data):
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def test_a_good_directory_has_no_findings(stopped):
    code, text = run("check", stopped.paths[0])
    assert (code, "no findings" in text) == (0, True), text


def test_the_broker_must_be_stopped(stopped):
    stopped.start()
    code, text = run("check", stopped.paths[0])
    assert code == 1
    assert "locked" in text
    stopped.crash()


def test_repair_wants_to_be_told_whether_to_do_it(stopped):
    assert run("repair", stopped.paths[0])[0] == 2
    assert run("check", "/no/such/directory")[0] == 2


def test_a_damaged_batch_is_found_and_replaced_and_the_file_is_kept(stopped):
    path = segment(stopped, 1)
    at = batch_positions(path)[3]
    overwrite(path, at + 100, b"\xff\xfe")
    code, text = run("check", stopped.paths[0], "--json")
    (finding,) = [each for each in json.loads(text)["findings"] if each["path"] == path]
    assert code == 1
    assert (finding["path"], finding["position"]) == (path, at)
    lost = range(finding["first_offset"], finding["next_offset"])
    with open(path, "rb") as file:
        before = file.read()
    assert run("repair", stopped.paths[0], "--dry-run")[0] == 1
    with open(path, "rb") as file:
        assert file.read() == before
    code, text = run("repair", stopped.paths[0], "--execute")
    assert code == 0, text
    with open(path + ".damaged", "rb") as file:
        assert file.read() == before
    assert run("check", stopped.paths[0])[0] == 0
    stopped.start()
    assert stopped.log.directory.damage.entries == []
    found = offsets_with_records(stopped.log)
    assert found == [offset for offset in range(80) if offset not in lost]
    assert stopped.append(stopped.log, batch(1)) == [80]
    stopped.crash()


def offsets_with_records(log):
    from harness import read_all

    return [
        offset
        for header, _ in read_all(log)
        if header.record_count
        for offset in range(header.base_offset, header.last_offset + 1)
    ]


@pytest.mark.parametrize("place", [0, 8, 16], ids=["base offset", "length", "magic"])
def test_a_header_that_can_be_restored_loses_nothing(stopped, place):
    path = segment(stopped, 1)
    overwrite(path, batch_positions(path)[3] + place, b"\x01")
    code, text = run("repair", stopped.paths[0], "--execute")
    assert code == 0, text
    assert "lost: nothing" in text
    stopped.start()
    assert offsets_with_records(stopped.log) == list(range(80))
    stopped.crash()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["garbage", "odd", "missing"])
def test_an_index_is_made_again(stopped, suffix, how, monkeypatch):
    monkeypatch.setattr("headrace.log.checking.UNINDEXED_BYTES_MAX", 0)
    path = segment(stopped, 0)[:-4] + suffix
    if how == "garbage":
        overwrite(path, 0, b"\x33" * os.path.getsize(path))
    elif how == "odd":
        os.truncate(path, os.path.getsize(path) - 1)
    else:
        os.unlink(path)
    code, text = run("check", stopped.paths[0])
    assert code == 1
    assert path in text
    code, text = run("repair", stopped.paths[0], "--execute")
    assert code == 0, text
    stopped.start()
    assert offsets_of(stopped.log) == list(range(80))
    stopped.crash()


def test_an_emptied_log_goes_on_where_it_ended(stopped):
    os.truncate(segment(stopped, -1), 0)
    code, text = run("repair", stopped.paths[0], "--execute")
    assert code == 0, text
    assert "to 79" in text
    stopped.start()
    assert stopped.append(stopped.log, batch(1)) == [80]
    stopped.crash()


def test_checkpoints_that_cannot_be_read_are_set_aside(stopped):
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        overwrite(os.path.join(stopped.paths[0], name), 0, b"\xff\xfe")
    snapshot = glob.glob(os.path.join(stopped.paths[0], "t-0", "*.snapshot"))[-1]
    overwrite(snapshot, 8, b"\xff")
    code, text = run("repair", stopped.paths[0], "--execute")
    assert code == 0, text
    stopped.start()
    assert offsets_of(stopped.log) == list(range(80))
    assert stopped.log.producers.get(5).batches[-1].last_sequence == 79
    stopped.crash()


def test_a_gap_between_two_segments_is_filled(stopped):
    path = segment(stopped, 1)
    at = batch_positions(path)
    following = int(os.path.basename(segment(stopped, 2))[:20])
    os.truncate(path, at[-1])
    os.unlink(os.path.join(stopped.paths[0], ".kafka_cleanshutdown"))
    code, text = run("check", stopped.paths[0])
    assert (code, "no file has these offsets" in text) == (1, True), text
    code, text = run("repair", stopped.paths[0], "--execute")
    assert code == 0, text
    assert os.path.getsize(path + ".damaged") == at[-1]
    assert run("check", stopped.paths[0])[0] == 0
    stopped.start()
    assert stopped.log.directory.damage.entries == []
    assert offsets_of(stopped.log) == list(range(80))
    assert offsets_with_records(stopped.log) == [
        each for each in range(80) if each not in (following - 2, following - 1)
    ]
    stopped.crash()


def test_a_kill_before_the_repaired_file_has_its_name_leaves_the_old_one(stopped, monkeypatch):
    path = segment(stopped, 1)
    overwrite(path, batch_positions(path)[3] + 100, b"\xff\xfe")
    with open(path, "rb") as file:
        before = file.read()

    def killed(disk, old, new):
        raise KeyboardInterrupt

    monkeypatch.setattr(Disk, "rename", killed)
    run("repair", stopped.paths[0], "--execute")
    for name in (path, path + ".damaged"):
        with open(name, "rb") as file:
            assert file.read() == before
