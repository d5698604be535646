import asyncio
import os
import sys
import threading
import types
from pathlib import Path

import pytest
from waits import WAIT_S_MAX

import headrace
from headrace.core.errors import HeadraceError, OperatorError
from headrace.core.settings.broker import BrokerSettings


class FakeNode:
    """Lives as the real one does, on the thread that calls it."""

    last: "FakeNode"
    opening: threading.Event  # that it has begun to open
    may_open: threading.Event
    open_error: Exception | None = None
    run_error: Exception | None = None

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.port = settings.port or 45678
        self.ports = {"PLAINTEXT": self.port}
        self.calls: list[tuple[str, str]] = []
        self._stop = threading.Event()
        FakeNode.last = self

    def _note(self, call: str) -> None:
        self.calls.append((call, threading.current_thread().name))

    def open(self) -> None:
        self._note("open")
        self.opening.set()
        assert self.may_open.wait(WAIT_S_MAX)
        if self.open_error:
            raise self.open_error
        os.makedirs(self.settings.log_dirs[0], exist_ok=True)
        Path(self.settings.log_dirs[0], "file").write_text("x")

    def run(self) -> None:
        self._note("run")
        if self.run_error:
            self._stop.wait(WAIT_S_MAX)
            raise self.run_error
        assert self._stop.wait(WAIT_S_MAX)

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        self._note("close")


@pytest.fixture(autouse=True)
def fake_node(monkeypatch: pytest.MonkeyPatch) -> type[FakeNode]:
    module = types.ModuleType("headrace.broker.node")
    module.Node = FakeNode  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "headrace.broker.node", module)
    monkeypatch.setattr(FakeNode, "opening", threading.Event(), raising=False)
    monkeypatch.setattr(FakeNode, "may_open", threading.Event(), raising=False)
    FakeNode.may_open.set()
    for name in ("open_error", "run_error"):
        monkeypatch.setattr(FakeNode, name, getattr(FakeNode, name))
    return FakeNode


def broker_threads() -> int:
    """Of this test: a broker that other tests share may run meanwhile."""
    return sum(thread.name == "headrace-broker" and thread not in _before for thread in threading.enumerate())


_before: list[threading.Thread] = []


@pytest.fixture(autouse=True)
def threads_before() -> None:
    _before[:] = threading.enumerate()


def test_a_broker_runs_inside_a_with_and_leaves_nothing() -> None:
    with headrace.Broker() as broker:
        assert broker.bootstrap_servers == "127.0.0.1:45678"
        assert broker.port == 45678
        directory = broker.data
        assert os.path.exists(f"{directory}/file")
    assert not os.path.exists(directory)
    assert broker_threads() == 0


def test_a_node_lives_on_one_thread_from_open_to_close() -> None:
    with headrace.Broker():
        pass
    assert FakeNode.last.calls == [(call, "headrace-broker") for call in ("open", "run", "close")]


def test_given_data_stays(tmp_path: Path) -> None:
    with headrace.Broker(data=tmp_path / "data", port=7, num_partitions=3) as broker:
        assert broker.data == str(tmp_path / "data")
        assert (FakeNode.last.settings.num_partitions, FakeNode.last.settings.port) == (3, 7)
    assert (tmp_path / "data" / "file").exists()


def test_several_directories_may_be_given(tmp_path: Path) -> None:
    with headrace.Broker(data=[tmp_path / "a", tmp_path / "b"]):
        assert FakeNode.last.settings.log_dirs == (str(tmp_path / "a"), str(tmp_path / "b"))


def test_an_error_at_start_is_raised_in_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeNode, "open_error", OperatorError("port 7 is in use"))
    broker = headrace.Broker(port=7)
    with pytest.raises(OperatorError, match="port 7 is in use"):
        broker.start()
    assert FakeNode.last.calls[-1][0] == "close"
    assert broker_threads() == 0
    assert not os.path.exists(FakeNode.last.settings.log_dirs[0])
    broker.stop()


def test_what_the_broker_died_of_is_raised_at_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeNode, "run_error", RuntimeError("died"))
    broker = headrace.Broker().start()
    with pytest.raises(RuntimeError, match="died"):
        broker.stop()
    broker.stop()


def test_start_and_stop_may_be_called_twice_and_again() -> None:
    broker = headrace.Broker()
    assert broker.start() is broker.start()
    broker.stop()
    broker.stop()
    with broker:
        assert broker.port == 45678


def test_a_broker_that_does_not_run_has_no_port() -> None:
    with pytest.raises(HeadraceError, match="not running"):
        _ = headrace.Broker().port


def test_a_wrong_setting_fails_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="num_partition is not a setting of a broker; did you mean num_partitions"):
        headrace.Broker(num_partition=3)
    with pytest.raises(OperatorError, match=r"num\.partitions=0 is below 1"):
        headrace.Broker(num_partitions=0)


async def until_it_opens() -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not FakeNode.opening.is_set():
            await asyncio.sleep(0.001)


def test_the_async_form_never_blocks_the_callers_loop() -> None:
    """The caller's loop itself lets the broker open, in the middle of its start."""
    FakeNode.may_open.clear()

    async def scenario() -> None:
        async def let_it_open() -> None:
            await until_it_opens()
            FakeNode.may_open.set()

        letting = asyncio.create_task(let_it_open())
        async with headrace.Broker() as broker:
            assert broker.bootstrap_servers == "127.0.0.1:45678"
        await letting

    asyncio.run(scenario())
    assert broker_threads() == 0


def test_a_cancelled_async_start_leaves_no_broker_behind() -> None:
    FakeNode.may_open.clear()

    async def start() -> None:
        async with headrace.Broker():
            pytest.fail("started in spite of being cancelled")

    async def scenario() -> None:
        starting = asyncio.create_task(start())
        await until_it_opens()
        starting.cancel()
        await asyncio.sleep(0)  # it hears of it while the broker still opens
        FakeNode.may_open.set()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(scenario())
    assert broker_threads() == 0
    assert not os.path.exists(FakeNode.last.settings.log_dirs[0])
