"""`make test-pythons`: the unit tests and a wire smoke test on every supported Python that this machine has.

One Python after the other, each in a virtual environment of its own (`.venv-3.X`) with the `test` extra and the source
itself, interpreted. Spark is left out, so that a run takes minutes; `make test` has it. Supported are the versions in
the classifiers of pyproject.toml; one that is not on this machine is named and left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")
VERSION_S_MAX = 30.0
SUITES = {
    "unit tests": ["tests/unit"],
    "wire smoke test": ["tests/wire/test_confluent.py", "tests/wire/test_aiokafka.py"],
}


def supported() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [match[1] for each in project["classifiers"] if (match := CLASSIFIER.fullmatch(each))]


def find(version: str, pyenv: Path) -> str | None:
    """An interpreter of that version that really runs: on the PATH, or else the newest of pyenv's."""
    return next((path for path in _candidates(version, pyenv) if _runs(path, version)), None)


def _candidates(version: str, pyenv: Path) -> Iterator[str]:
    if found := shutil.which(f"python{version}"):
        yield found
    installed = pyenv.glob(f"versions/{version}.*/bin/python{version}")
    for path in sorted(installed, key=lambda path: _numbers(path.parent.parent.name), reverse=True):
        yield str(path)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _runs(python: str, version: str) -> bool:
    """A shim of pyenv's is on the PATH even where nothing stands behind it."""
    script = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [python, "-c", script], capture_output=True, text=True, timeout=VERSION_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def prepare(python: str, version: str) -> Path | None:
    """The environment's interpreter, or None if it could not be set up."""
    folder = ROOT / f".venv-{version}"
    own = folder / "bin" / "python"
    ready = own.exists() and _runs(str(own), version)
    if not ready and not _run(python, "-m", "venv", "--clear", str(folder)):
        return None
    pip = (str(own), "-m", "pip", "--disable-pip-version-check", "install", "-q")
    return own if _run(*pip, "-e", f"{ROOT}[test]", environ={"HEADRACE_NATIVE": "0"}) else None


def _run(*command: str, environ: dict[str, str] | None = None) -> bool:
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **(environ or {})}, check=False).returncode == 0


def run_on(version: str, python: str) -> str:
    """The outcome in a few words; empty if all is well."""
    say(f"Python {version} ({python}): setting up .venv-{version}")
    own = prepare(python, version)
    if own is None:
        return "could not be set up"
    failed = []
    for name, paths in SUITES.items():
        say(f"Python {version}: {name}")
        if not _run(str(own), "-m", "pytest", *paths):
            failed.append(name)
    return f"{' and '.join(failed)} failed" if failed else ""


def say(line: str) -> None:
    print(f"== {line}", flush=True)


def main(versions: Sequence[str]) -> int:
    """`versions` narrows the run, as in `python tests/pythons.py 3.12`."""
    known = supported()
    if unknown := [each for each in versions if each not in known]:
        print(f"Python {unknown[0]} is not supported; give some of {', '.join(known)}", file=sys.stderr)
        return 2
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    outcomes = {}
    for version in versions or known:
        python = find(version, pyenv)
        began = time.monotonic()
        outcomes[version] = "not on this machine" if python is None else run_on(version, python) or "passed"
        say(f"Python {version}: {outcomes[version]} ({time.monotonic() - began:.0f} s)")
    say("; ".join(f"{version} {outcome}" for version, outcome in outcomes.items()))
    run = [outcome for outcome in outcomes.values() if outcome != "not on this machine"]
    return 0 if run and set(run) == {"passed"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
