import hashlib
from pathlib import Path

import pytest

from headrace.core.errors import OperatorError
from headrace.core.findings import Status
from headrace.streaming import checks
from headrace.streaming.checks import check_jars, check_java, check_packages
from headrace.streaming.jars import Jar, Lock
from headrace.streaming.java import Java

LOCK = Lock(
    packages={"pyspark": "4.2.0", "deltalake": "1"},
    jars=(Jar(group="g", name="alpha", version="1", sha256=hashlib.sha256(b"alpha").hexdigest()),),
)


def test_packages_are_fine_absent_or_of_the_wrong_version() -> None:
    right, absent = check_packages(LOCK, {"pyspark": "4.2.0", "deltalake": None})
    assert (right.status, absent.status) == (Status.OK, Status.WARN)
    wrong = check_packages(LOCK, {"pyspark": "3.5.1", "deltalake": "1.6.6"})[0]
    assert (wrong.status, wrong.text) == (Status.FAIL, "3.5.1, but 4.2.0 goes with the jars")
    assert wrong.remedy == "pip install 'headrace[spark]'"


def test_jars_are_right_absent_or_torn(tmp_path: Path) -> None:
    absent = check_jars(LOCK, str(tmp_path))
    assert (absent.status, absent.remedy) == (Status.WARN, "headrace doctor --fetch")
    (tmp_path / "alpha-1.jar").write_bytes(b"alph")
    torn = check_jars(LOCK, str(tmp_path))
    assert torn.status is Status.FAIL
    assert "alpha-1.jar" in torn.text
    (tmp_path / "alpha-1.jar").write_bytes(b"alpha")
    assert check_jars(LOCK, str(tmp_path)).status is Status.OK


def test_java_is_needed_only_by_who_has_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Java:
        raise OperatorError("Java: none was found; Spark needs 17 or newer: pip install 'headrace[java]', or more")

    monkeypatch.setattr(checks, "find_java", none)
    assert check_java(needed=False).status is Status.WARN
    finding = check_java(needed=True)
    assert finding.status is Status.FAIL
    assert finding.text == "none was found; Spark needs 17 or newer"
    assert finding.remedy.startswith("pip install 'headrace[java]'")


def test_a_session_without_the_right_pyspark_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "installed_versions", lambda names: dict.fromkeys(names))
    with pytest.raises(OperatorError, match=r"^pyspark: not installed, but Spark needs .*; pip install"):
        checks.check_spark_installed()
