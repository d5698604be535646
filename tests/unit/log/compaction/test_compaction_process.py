"""The process that compacts is started when there is work, and gone when the broker is."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from compaction_harness import EAGER, keyed, put, seal, table
from harness import Bench
from waits import WAIT_S_MAX, eventually

from headrace.log.compaction import worker as compaction_worker
from headrace.log.compaction.compactor import CompactionSettings, Compactor
from headrace.log.compaction.process import CompactionProcess
from headrace.log.compaction.requests import CompactionRefused, MapRequest, MergeRequest, to_plain


class Broker:
    """A loop, as far as compaction needs one: threads give their results back to it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.back: list = []
        self.event = threading.Event()
        self.process = CompactionProcess(self.submit)
        self.compactor = self.compactor_with(CompactionSettings())
        self.threads: list[threading.Thread] = []

    def compactor_with(self, settings: CompactionSettings) -> Compactor:
        bench = self.bench
        return Compactor(bench.store, bench.housekeeping, bench.clock, self.process.run, settings)

    def submit(self, job, done) -> None:
        def work() -> None:
            try:
                result, error = job(), None
            except BaseException as failure:
                result, error = None, failure
            self.back.append((done, result, error))
            self.event.set()

        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()

    def run_until(self, check) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while not check():
            assert self.event.wait(deadline - time.monotonic())
            self.event.clear()
            while self.back:
                done, result, error = self.back.pop(0)
                done(result, error)

    def compact(self) -> int:
        rounds = self.compactor.rounds_done
        self.compactor.tick()
        self.run_until(lambda: not self.compactor.busy)
        return self.compactor.rounds_done - rounds

    @property
    def pid(self) -> int:
        return self.process._process.pid

    def close(self) -> None:
        self.compactor.close()
        self.process.close()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def broker(tmp_path):
    made = Broker(Bench(tmp_path))
    yield made
    made.close()
    made.bench.crash()


def dirty(broker: Broker, count: int = 10) -> None:
    log = broker.bench.store.find("t", 0) or broker.bench.create(**EAGER)
    put(broker.bench, log, keyed([(b"key", b"%d" % number) for number in range(count)]))
    seal(broker.bench, log)


def test_it_compacts_and_serves_one_request_after_the_other(broker):
    for _ in range(3):
        dirty(broker)
        assert broker.compact() == 1
        assert table(broker.bench.log) == {b"key": b"9"}
    assert os.getpriority(os.PRIO_PROCESS, broker.pid) >= compaction_worker.NICENESS


def test_another_is_started_when_it_is_gone(broker):
    dirty(broker)
    assert broker.compact() == 1
    first = broker.pid
    os.kill(first, signal.SIGTERM)
    broker.process._process.wait()
    dirty(broker)
    assert broker.compact() == 1
    assert broker.pid != first


def test_one_that_dies_at_work_costs_a_round(broker):
    dirty(broker)
    answers = []
    request = MergeRequest(round=99, sources=[("x", 1)], path="x", base_offset=0, index_interval_bytes=1, producers=[])
    broker.process.run(request, answers.append)
    broker.run_until(lambda: answers)
    assert answers == [CompactionRefused(why="x: compaction 99 was not begun in this process")]
    os.kill(broker.pid, signal.SIGKILL)
    broker.process._process.wait()
    broker.process.run(request, answers.append)
    broker.run_until(lambda: len(answers) == 2)
    assert answers[1].why == "the compaction process ended with code -9"
    assert broker.compact() == 1


def test_a_stop_ends_it_at_once_whatever_it_does(broker):
    broker.compactor = broker.compactor_with(CompactionSettings(bytes_per_second_max=1.0))  # it would take hours
    dirty(broker, 1000)
    broker.compactor.tick()
    process = eventually(lambda: broker.process._process, "it is started")
    closing = threading.Thread(target=broker.close, daemon=True)
    closing.start()
    closing.join(WAIT_S_MAX)
    assert not closing.is_alive()
    assert process.poll() is not None
    broker.compactor.tick()
    assert not broker.compactor.busy


def test_it_ends_when_its_input_does():
    command = [sys.executable, "-m", "headrace.log.compaction.worker", str(os.getpid())]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S_MAX, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_it_ends_when_nothing_comes_and_another_is_started_then(broker, monkeypatch):
    dirty(broker)
    assert broker.compact() == 1
    broker.process._process.stdin.close()  # as if it had decided to end
    broker.process._process.wait()
    dirty(broker)
    assert broker.compact() == 1


def test_it_stops_when_its_broker_is_gone(tmp_path):
    """A broker killed at work must not leave one behind that writes beside the next broker."""
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(bytes(keyed([(b"%d" % n, b"") for n in range(1000)])) * 400)
    request = MapRequest(
        round=1,
        segments=[(str(log), log.stat().st_size, 1000)],
        aborted=[],
        start_offset=0,
        end_offset=1000,
        keys_max=10_000,
        piece_bytes=8192,
        bytes_per_second_max=10_000,  # for longer than the test waits
        now_ms=1,
        delete_retention_ms=1,
    )
    program = (
        "import os, subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'headrace.log.compaction.worker', str(os.getpid())]\n"
        "child = subprocess.Popen(command, stdin=subprocess.PIPE)\n"
        f"child.stdin.write(b'''{json.dumps(to_plain(request))}\\n''')\n"
        "child.stdin.flush()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    eventually(lambda: not _is_alive(pid), "it does not work on for nobody")


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False
