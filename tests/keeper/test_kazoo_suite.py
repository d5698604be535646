"""kazoo's own tests, as they are installed with kazoo, on a keeper: `make keeper-kazoo` runs all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from waits import WAIT_S_MAX

HERE = Path(__file__).parent
LEFT_OUT = {
    "test_sasl": "SASL: a keeper knows world, auth, digest, ip and super",
    "TestSSLClient": "TLS: secureClientPort is not served yet",
    "TestReadOnlyMode": "needs an ensemble that has lost its majority",
    "TestReconfig": "needs an ensemble; a standalone server refuses reconfig, which test_keeper_operations checks",
    "test_update_host_list": "needs a second server",
}
QUICK = ("barrier", "counter", "election", "interrupt", "party", "queue", "security", "watchers")
LONG_S_MAX = 3600.0


def _run(directory: Path, names: list[str], wait_s_max: float) -> dict[str, str]:
    """What failed, and how; the tests are those that the installed kazoo brings."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pytest.ini").write_text("[pytest]\n")
    report = directory / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(directory / "pytest.ini"), "-p", "kazoo_on_keeper"]
    command += ["-p", "no:cacheprovider", "-p", "no:headrace", f"--junitxml={report}", "--tb=short"]
    command += ["-k", " and ".join(f"not {name}" for name in LEFT_OUT), "--pyargs", *names]
    paths = [str(HERE), str(HERE.parent), str(HERE.parent.parent / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "ZOOKEEPER_VERSION": "3.9.3"}
    environment.pop("CI", None)
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=wait_s_max, check=False
    )
    assert report.exists(), done.stdout[-4000:] + done.stderr[-4000:]
    suite = ElementTree.parse(report).getroot()[0]
    assert int(suite.attrib["tests"]) - int(suite.attrib["skipped"]) >= len(names)
    print(f"kazoo: {suite.attrib}")
    return {
        f"{case.attrib['classname']}.{case.attrib['name']}": (problem.text or "")[-3000:]
        for case in suite.iter("testcase")
        for problem in case
        if problem.tag in ("failure", "error")
    }


def test_the_recipes_and_watches_of_kazoos_tests_work_on_a_keeper(tmp_path: Path) -> None:
    failed = _run(tmp_path, [f"kazoo.tests.test_{name}" for name in QUICK], 4 * WAIT_S_MAX)
    assert failed == {}


def test_all_of_kazoos_tests_work_on_a_keeper(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--whole"):
        pytest.skip("make keeper-kazoo runs it")
    assert _run(tmp_path, ["kazoo.tests"], LONG_S_MAX) == {}
