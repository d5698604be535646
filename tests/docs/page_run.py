"""Runs the blocks of one page in order, in one directory, against one broker, as a reader would.

Only addresses are replaced. A block that fails, takes too long or prints something else than the page says fails the
page, and the message names the line.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from blocks import Block
from ports import reserved_ports
from waits import WAIT_S_MAX

import headrace

ADDRESS, METRICS_PORT, KEEPER_PORT = "127.0.0.1:9092", "9095", "2181"
_STARTS_BROKER = re.compile(r"^headrace (up|broker)\b", re.MULTILINE)


class PageRun:
    def __init__(self, directory: Path, page_blocks: list[Block]) -> None:
        self.directory = directory
        self._blocks = page_blocks
        self._stack = ExitStack()
        self._background: list[tuple[Block, subprocess.Popen[bytes]]] = []
        self._printed = ""
        port, metrics_port, keeper_port = self._stack.enter_context(reserved_ports(3))
        self._address = f"127.0.0.1:{port}"
        self._port, self._metrics_port, self._keeper_port = port, str(metrics_port), str(keeper_port)
        self._environ = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HEADRACE_BOOTSTRAP": self._address,
            "HEADRACE_LISTENERS": f"PLAINTEXT://{self._address}",
            "HEADRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",  # what a person does not notice costs a test 3 s
            "NO_COLOR": "1",
        }

    def __enter__(self) -> Self:
        runs = [block for block in self._blocks if block.is_run and block.mark != "spark"]
        if runs and not any(block.mark == "background" and _STARTS_BROKER.search(block.text) for block in runs):
            self._stack.enter_context(
                headrace.Broker(port=self._port, num_partitions=1, group_initial_rebalance_delay_ms=0)
            )
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for block, process in reversed(self._background):
                process.send_signal(signal.SIGINT)  # as Ctrl-C does
                code = process.wait(WAIT_S_MAX)
                assert code == 0, f"{block.place}: ended with code {code} on Ctrl-C"
        finally:
            for _, process in self._background:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            self._stack.close()

    def run_all(self) -> None:
        for number, block in enumerate(self._blocks):
            text = self.replaced(block.text)
            if block.mark == "file":
                (self.directory / block.detail).write_text(text + "\n", encoding="utf-8")
            if block.mark == "output":
                self._compare(block, text)
            elif block.mark == "background":
                self._start(block, text)
            elif block.is_run and block.mark != "spark":
                self._printed = self._run(block, text, number)

    def replaced(self, text: str) -> str:
        text = text.replace(ADDRESS, self._address).replace(METRICS_PORT, self._metrics_port)
        return text.replace(f"127.0.0.1:{KEEPER_PORT}", f"127.0.0.1:{self._keeper_port}").replace(
            f"--port {KEEPER_PORT}", f"--port {self._keeper_port}"
        )

    def _run(self, block: Block, text: str, number: int) -> str:
        try:
            ended = subprocess.run(
                self._command(block, text, number),
                cwd=self.directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=WAIT_S_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            late = f"{block.place}: did not end within {WAIT_S_MAX:g} s; mark it as background?"
            raise AssertionError(late) from None
        printed, errors = ended.stdout.decode(), ended.stderr.decode()
        assert ended.returncode == 0, f"{block.place}: ended with code {ended.returncode}\n{printed}{errors}"
        return printed

    def _command(self, block: Block, text: str, number: int) -> list[str]:
        if block.language == "sh":
            return ["bash", "-euo", "pipefail", "-c", text]
        name = block.detail if block.mark == "file" else f"block_{number}.py"
        (self.directory / name).write_text(text + "\n", encoding="utf-8")
        return [sys.executable, name]

    def _start(self, block: Block, text: str) -> None:
        path = self.directory / f"background_{len(self._background)}.txt"
        with open(path, "wb") as output, open(path.with_suffix(".stderr"), "wb") as errors:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {text}"],
                cwd=self.directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
        self._background.append((block, process))
        deadline = time.monotonic() + WAIT_S_MAX
        while not path.read_bytes().endswith(b"\n"):
            ended = f"{block.place}: ended with code {process.poll()}\n{path.with_suffix('.stderr').read_text()}"
            assert process.poll() is None, ended
            assert time.monotonic() < deadline, f"{block.place}: printed nothing within {WAIT_S_MAX:g} s"
            time.sleep(0.02)
        self._printed = path.read_text()

    def _compare(self, block: Block, expected: str) -> None:
        assert matches(expected, self._printed), (
            f"{block.place}: the block before it does not print this. Expected:\n{expected}\nPrinted:\n{self._printed}"
        )


def matches(expected: str, printed: str) -> bool:
    """Whether it was printed; … stands for anything, and blanks at the ends of lines do not count."""
    wanted, found = ("\n".join(line.rstrip() for line in text.strip().splitlines()) for text in (expected, printed))
    return re.fullmatch(".*".join(map(re.escape, wanted.split("…"))), found, re.DOTALL) is not None
