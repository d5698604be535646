import pytest
from ports import reserved_port

from headrace.core.errors import OperatorError
from headrace.streaming import session as session_module
from headrace.streaming.session import SparkSettings, log_path, running, session, stop


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where tests/streaming runs in the same process, with its session."""
    monkeypatch.setattr(session_module, "_running", None)


def test_a_master_that_is_not_there_is_said_at_once() -> None:
    pytest.importorskip("pyspark")
    with reserved_port() as port:
        address = f"spark://127.0.0.1:{port}"
        with pytest.raises(OperatorError, match=rf"^{address}: no Spark master answers \(connection refused\)"):
            session(SparkSettings(master=address))
    assert log_path() is None


def test_without_java_the_session_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")

    def none() -> None:
        raise OperatorError("Java: none was found")

    monkeypatch.setattr(session_module, "find_java", none)
    with pytest.raises(OperatorError, match="none was found"), running(SparkSettings()):
        pass


def test_stopping_what_does_not_run_does_nothing() -> None:
    stop()
    assert log_path() is None
