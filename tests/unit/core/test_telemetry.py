import io
import json
import logging
from collections.abc import Iterator

import pytest

from headrace.core import telemetry
from headrace.core.telemetry import LimitedHandler, TextFormatter, configure_logging, event

log = logging.getLogger("headrace.test")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger("headrace")
    before = (list(root.handlers), root.level, root.propagate)
    yield
    root.handlers[:], _, root.propagate = before
    root.setLevel(before[1])


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def limited() -> tuple[logging.Logger, io.StringIO, Clock, LimitedHandler]:
    out, clock = io.StringIO(), Clock()
    handler = LimitedHandler(out, clock)
    handler.setFormatter(TextFormatter())
    logger = logging.Logger("headrace.limited")
    logger.addHandler(handler)
    return logger, out, clock, handler


def test_a_line_holds_time_level_logger_message_and_fields() -> None:
    out = io.StringIO()
    configure_logging("info", stream=out)
    event(log, logging.INFO, "100% sure", peer="10.0.0.1:5", size=12, reason="not a frame")
    stamp, level, name, rest = out.getvalue().split(" ", 3)
    assert stamp.endswith("Z")
    assert len(stamp) == len("2026-01-01T00:00:00.000Z")
    assert (level, name) == ("INFO", "headrace.test")
    assert rest == '100% sure peer=10.0.0.1:5 size=12 reason="not a frame"\n'


def test_json_lines_hold_the_same() -> None:
    out = io.StringIO()
    configure_logging("info", json=True, stream=out)
    event(log, logging.INFO, "closed", peer="p", size=12)
    line = json.loads(out.getvalue())
    assert line.items() >= {"level": "INFO", "message": "closed", "peer": "p", "size": 12}.items()


def test_only_warnings_are_written_unless_asked_otherwise() -> None:
    out = io.StringIO()
    configure_logging(stream=out)
    event(log, logging.INFO, "quiet")
    event(log, logging.WARNING, "loud")
    assert out.getvalue().count("\n") == 1
    assert "loud" in out.getvalue()


def test_configuring_twice_writes_once() -> None:
    out = io.StringIO()
    configure_logging(stream=io.StringIO())
    configure_logging(stream=out)
    event(log, logging.WARNING, "once")
    assert out.getvalue().count("once") == 1


def test_text_of_a_peer_cannot_forge_a_line() -> None:
    out = io.StringIO()
    configure_logging(stream=out)
    event(log, logging.WARNING, "bad\nERROR forged", client="x\ny\x1b[2J")
    assert out.getvalue().count("\n") == 1
    assert "\x1b" not in out.getvalue()


def test_repeated_warnings_are_written_a_few_times_and_then_counted() -> None:
    logger, out, clock, _ = limited()
    for port in range(1000):
        event(logger, logging.WARNING, "garbage frame", peer=f"1.2.3.4:{port}")
    assert out.getvalue().count("garbage frame") == telemetry.REPEATS_MAX
    clock.now += telemetry.WINDOW_S
    event(logger, logging.INFO, "something else")
    assert f"garbage frame peer=1.2.3.4:999 suppressed={1000 - telemetry.REPEATS_MAX}\n" in out.getvalue()


def test_a_new_window_writes_again() -> None:
    logger, out, clock, _ = limited()
    for _ in range(3):
        for _ in range(50):
            event(logger, logging.WARNING, "again")
        clock.now += telemetry.WINDOW_S
    assert 3 * telemetry.REPEATS_MAX <= out.getvalue().count("\n") <= 3 * (telemetry.REPEATS_MAX + 1)


def test_what_was_held_back_is_told_at_the_end() -> None:
    logger, out, _, handler = limited()
    for _ in range(15):
        event(logger, logging.WARNING, "again")
    handler.close()
    assert out.getvalue().endswith("again suppressed=5\n")


def test_a_flood_of_different_messages_is_bounded_too() -> None:
    logger, out, clock, _ = limited()
    for number in range(3 * telemetry._MESSAGES_MAX):
        logger.warning(f"message {number}")
    assert out.getvalue().count("\n") <= telemetry.LINES_MAX
    clock.now += telemetry.WINDOW_S
    logger.warning("after")
    assert out.getvalue().count("\n") <= telemetry.LINES_MAX + telemetry.REPEATS_MAX + 3
    assert "suppressed=" in out.getvalue()
    assert "after" in out.getvalue()


def test_lines_below_a_warning_are_never_held_back() -> None:
    logger, out, _, _ = limited()
    for _ in range(100):
        event(logger, logging.INFO, "progress")
    assert out.getvalue().count("progress") == 100


def test_an_exception_is_written_with_its_line() -> None:
    out = io.StringIO()
    configure_logging(stream=out)
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")
    assert "failed\nTraceback" in out.getvalue()
