"""Makes `.venv`, step by step, and says what each step does. Run by make; it needs the standard library only.

    python tools/set_up.py .venv              # headrace, compiled, with Spark, tables and the terminal views
    python tools/set_up.py .venv --tools      # what a contributor needs on top
    python tools/set_up.py .venv --editable   # both, with headrace as source

Packages are installed by uv, which unpacks each version once per machine and links it; hatch_build.py keeps the
compiled modules, and `headrace` what it has prepared for Spark. So a second set-up of the same source takes seconds.
"""

import argparse
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = "uv>=0.9,<1"
PROGRESS = re.compile(r"headrace: (.*)")  # what hatch_build.py says while it compiles
PREPARE = """
from headrace.cli.preparing import prepare
prepare(lambda line: print("        ", line, flush=True), train=%s)
"""
# What a pipeline imports, so that it is compiled once: as pip does it, and uv only for every file of every package.
IMPORT = """
import confluent_kafka, delta.tables, pandas, pyarrow
import pyspark.sql.functions, pyspark.sql.pandas.serializers, pyspark.worker
import headrace.cli.main, headrace.cli.pipeline.run, headrace.cli.table.command, headrace.streaming.operation
import headrace.streaming.training_pipeline, headrace.streaming.worker_daemon, headrace.tables.query
"""
BEGAN = time.monotonic()
SAID_EVERY_S = 3.0


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:5.0f} s  {text}", flush=True)


def run(*words: str, **more: object) -> None:
    ended = subprocess.run(words, cwd=ROOT, **more)  # type: ignore[call-overload]
    if ended.returncode:
        raise SystemExit(f"set-up: this command failed: {' '.join(words)}")


def spark_wheel(python: str) -> str:
    """The directory with a wheel of Spark. PyPI has its source only, 450 MB, and an index that does not say whether it
    has changed would have uv build it again for each environment; so it is built once per machine."""
    cache = runpy.run_path(str(ROOT / "src/headrace/core/cache_directory.py"))["cache_directory"]()
    wheels = Path(cache) / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    pinned = re.search(r"pyspark\[sql\]==([\d.]+)", (ROOT / "pyproject.toml").read_text())
    if pinned is None:
        raise SystemExit("set-up: pyproject.toml pins no version of pyspark")
    if not list(wheels.glob(f"pyspark-{pinned[1]}-*.whl")):
        say(f"fetching Spark {pinned[1]} and building its wheel, once per machine; about a minute")
        with tempfile.TemporaryDirectory(dir=wheels) as work:
            pip = (python, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps")
            # Jars are compressed already; to compress them again takes longer than everything else here.
            pip += ("--config-settings", "--build-option=--compression=stored")
            with Growing("Spark", work):
                run(*pip, "--wheel-dir", work, f"pyspark=={pinned[1]}", env={**os.environ, "TMPDIR": work})
            for built in Path(work).glob("*.whl"):
                os.replace(built, wheels / built.name)
    return str(wheels)


class Growing:
    """Says how far a step is whose program does not: by what it has put into a directory so far."""

    def __init__(self, subject: str, directory: str) -> None:
        self._subject = subject
        self._directory = Path(directory)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        most = 0  # what was fetched is removed once it is unpacked, so the directory shrinks now and then
        while not self._ended.wait(SAID_EVERY_S):
            with suppress(OSError):  # a file is gone before its size is read
                megabytes = sum(each.stat().st_size for each in self._directory.rglob("*")) >> 20
                if megabytes > most:
                    most = megabytes
                    say(f"{self._subject}: {megabytes:,} MB so far, of about 1,900")


class Wheel:
    """The package, built beside the installing of what it needs."""

    def __init__(self, uv: str, python: str, directory: str) -> None:
        self._directory = Path(directory)
        self._lines: list[str] = []
        words = [uv, "build", "--wheel", "--python", python, "--out-dir", directory]
        self._process = subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        say("building headrace")

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.append(line)
            if found := PROGRESS.search(line):
                say(found[1])

    def path(self) -> str:
        self._process.wait()
        self._reader.join()
        if self._process.returncode:
            raise SystemExit("".join(self._lines[-40:]) + "set-up: headrace could not be built")
        return str(next(self._directory.glob("*.whl")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv")
    parser.add_argument("--tools", action="store_true")
    parser.add_argument("--editable", action="store_true")
    given = parser.parse_args()
    venv = ROOT / given.venv
    python, uv = str(venv / "bin" / "python"), str(venv / "bin" / "uv")
    if not os.path.exists(uv):
        say(f"creating {given.venv} with Python {sys.version.split()[0]}, and uv in it")
        run(sys.executable, "-m", "venv", str(venv))
        run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", UV)
    install = [uv, "pip", "install", "--python", python]
    extras = ["dev"] if given.tools or given.editable else ["spark", "tui"]
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        extras.append("java")
    with tempfile.TemporaryDirectory(prefix="headrace-wheel-") as directory:
        wheel = None if given.tools or given.editable else Wheel(uv, python, directory)
        wheels = spark_wheel(python)
        say(f"installing what headrace[{','.join(extras)}] needs")
        options = [word for extra in extras for word in ("--extra", extra)]
        run(*install, "--find-links", wheels, "-r", "pyproject.toml", *options)
        if wheel is not None:
            # From the source, while the wheel is still being compiled.
            say("preparing Spark")
            run(python, "-c", PREPARE % False, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
            run(*install, "--no-deps", "--reinstall", wheel.path())
            say("compiling what a first run imports")
            run(python, "-c", IMPORT, env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"})
    if given.editable:
        run(*install, "--no-deps", "--reinstall", "-e", ".")
    if given.tools or given.editable:
        run(python, "-c", PREPARE % True)  # tests start Spark often, and none of them should leave the archive
    say("ready")


if __name__ == "__main__":
    main()
