"""Each four-letter word, /metrics and /health, beside what a real ZooKeeper answers to the same clients."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zookeeper
from keeper_process import four_letters
from prometheus_client.parser import text_string_to_metric_families
from raw_client import RawClient, create_body
from waits import WAIT_S_MAX

from headrace import Keeper
from headrace.keeper.settings import WORDS
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.jute import boolean_bytes, string_bytes

ASKED = re.compile(r"\[0\]\(|sessionId: 0x0$")  # whoever asks for the word
PLAIN = (
    (re.compile(r"^ ?/127\.0\.0\.1:\d+"), "CLIENT"),
    (re.compile(r"127\.0\.0\.1:\d+"), "CLIENT"),
    (re.compile(r"0x[0-9a-f]{6,15}\b"), "SESSION"),
    (re.compile(r"\b(est|lresp|llat|minlat|avglat|maxlat)=\d+"), r"\1=N"),
    (re.compile(r"^(Zookeeper version: 3\.9\.3).*"), r"\1"),
    (re.compile(r"^(Latency min/avg/max): \d+/\d+\.\d+/\d+$"), r"\1"),
    (re.compile(r"^(Received|Sent|Connections): \d+$"), r"\1"),
    (re.compile(r"^(datadir_size|logdir_size): \d+$"), r"\1"),
    (re.compile(r"^(dataDirSize|dataLogSize|clientPort)=\d+$"), r"\1"),
    (re.compile(r"^(dataDir|dataLogDir)=.*/version-2$"), r"\1"),
    (re.compile(r"^(Session|Connections) Sets \(\d+\)/\(\d+\):$"), r"\1 Sets"),
    (re.compile(r"^\d+ expire at \w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC \d{4}:$"), "EXPIRE"),
)
SAME_FIGURES = (
    "zk_server_state", "zk_znode_count", "zk_ephemerals_count", "zk_watch_count", "zk_approximate_data_size",
    "zk_global_sessions", "zk_local_sessions", "zk_num_alive_connections", "zk_outstanding_requests",
)  # fmt: skip
OURS_ALONE = {"zk_memory_size", "zk_last_zxid"}


def _use(port: int) -> list[RawClient]:
    """Two clients with ephemeral nodes and watches."""
    one, other = RawClient(port), RawClient(port)
    for path, flags in (("/e", 1), ("/p", 0), ("/e2", 1)):
        one.ask(codes.CREATE, create_body(path, b"x", flags))
    for client in (one, other):
        client.ask(codes.EXISTS, string_bytes("/e") + boolean_bytes(True))
    return [one, other]


@contextmanager
def _used(port: int) -> Iterator[None]:
    clients = _use(port)
    yield
    for client in clients:
        client.close()


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    missing = zookeeper.missing_program()
    if missing:
        pytest.skip(f"{missing} is not installed")
    with (
        Keeper(words="*", connections_per_address_max=0) as keeper,
        zookeeper.running(tmp_path_factory.mktemp("zookeeper")) as theirs,
        _used(keeper.port),
        _used(theirs),
    ):
        yield keeper.port, theirs


def _plain(answer: bytes) -> list[str]:
    lines = []
    for line in answer.decode().splitlines():
        if ASKED.search(line):
            continue
        for pattern, instead in PLAIN:
            line = pattern.sub(instead, line)
        if line != "EXPIRE":  # in how many sets they are, a rounding decides
            lines.append(line)
    return sorted(lines)


@pytest.mark.parametrize("word", [word for word in WORDS if word not in ("mntr", "envi", "crst", "srst")])
def test_a_word_is_answered_as_zookeeper_answers_it(ports: tuple[int, int], word: str) -> None:
    ours, theirs = (_plain(four_letters(port, word)) for port in ports)
    assert ours == theirs


def test_the_figures_of_mntr_are_zookeepers(ports: tuple[int, int]) -> None:
    ours, theirs = (
        dict(line.split("\t", 1) for line in four_letters(port, "mntr").decode().splitlines()) for port in ports
    )
    assert set(ours) - OURS_ALONE <= set(theirs)
    assert {name: ours[name] for name in SAME_FIGURES} == {name: theirs[name] for name in SAME_FIGURES}


def test_the_environment_has_zookeepers_names(ports: tuple[int, int]) -> None:
    ours, theirs = ({line.split("=")[0] for line in four_letters(port, "envi").decode().splitlines()} for port in ports)
    assert {name for name in theirs if not name.startswith(("java.", "os.memory"))} <= ours


def test_what_is_reset_begins_again(tmp_path: Path) -> None:
    with Keeper(words="*") as keeper, _used(keeper.port):
        for word, answer in (("crst", b"Connection stats reset.\n"), ("srst", b"Server stats reset.\n")):
            assert four_letters(keeper.port, word) == answer
        lines = [line for line in _plain(four_letters(keeper.port, "cons")) if line]
        assert lines == 2 * [
            "CLIENT[1](queued=0,recved=0,sent=0,sid=SESSION,lop=NA,est=N,to=30000,lzxid=0xffffffffffffffff,"
            "lresp=N,llat=N,minlat=N,avglat=N,maxlat=N)"
        ]
        assert "Latency min/avg/max: 0/0.0/0\nReceived: 0\n" in four_letters(keeper.port, "srvr").decode()


def _get(keeper: Keeper, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{keeper.node.metrics_port}{path}", timeout=WAIT_S_MAX) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_have_the_figures_of_mntr_without_their_prefix() -> None:
    with Keeper(words="*", metrics_port=0) as keeper, _used(keeper.port):
        status, text = _get(keeper, "/metrics")
        figures = {family.name: family.samples[0].value for family in text_string_to_metric_families(text)}
        assert status == 200
        assert (figures["znode_count"], figures["ephemerals_count"], figures["watch_count"]) == (8, 2, 2)
        mntr = four_letters(keeper.port, "mntr").decode()
        names = {line.split("\t")[0].removeprefix("zk_") for line in mntr.splitlines()}
        shown = {name for name in figures if not name.startswith("process_")}
        assert names == shown | {"version", "server_state"}


def test_health_says_that_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    with Keeper(metrics_port=0) as keeper, _used(keeper.port):
        status, text = _get(keeper, "/health")
        assert (status, json.loads(text)["status"]) == (200, "healthy")
        monkeypatch.setattr(keeper.node.log, "has_room", lambda _: False)
        status, text = _get(keeper, "/health")
        assert status == 503
        assert "the disk is full" in text
