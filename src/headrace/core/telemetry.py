"""Log lines for people and machines: time, level, logger, message, then key=value; or the same as JSON.

Lines go to stderr through the standard logging package, warnings and worse unless asked otherwise. A warning
that repeats is written a few times and then counted: a hostile peer cannot fill the disk by being refused.
"""

import logging
import os
import time
from collections.abc import Callable
from typing import Any, TextIO

REPEATS_MAX = 10  # lines of one message in a window, before the rest are only counted
LINES_MAX = 200  # lines of all messages in a window: the bound where every message is a new one
WINDOW_S = 10.0
_MESSAGES_MAX = 1024
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/+@%~[]()*")


def event(logger: logging.Logger, level: int, message: str, /, **fields: object) -> None:
    """Logs `message`, a constant, with what varies as fields: repeated messages are told by their text."""
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={"fields": fields})


def failure(logger: logging.Logger, message: str, error: BaseException, /, **fields: object) -> None:
    """Something of ours failed and is contained: one line that says what and where; the traceback is for `--debug`."""
    at, place = error.__traceback__, ""
    while at is not None:
        place = f"{os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}"
        at = at.tb_next
    event(logger, logging.ERROR, message, **fields, error=f"{type(error).__name__}: {error}", at=place)
    logger.debug("where it failed", exc_info=error)


def configure_logging(level: str = "warning", json: bool = False, stream: TextIO | None = None) -> None:
    """Sends Headrace's log to stderr (or `stream`); a second call replaces the first."""
    root = logging.getLogger("headrace")
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    handler = LimitedHandler(stream)
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    root.addHandler(handler)
    root.setLevel(level.upper())
    root.propagate = False


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname, record.name, _one_line(record.getMessage())]
        parts += [f"{key}={_quoted(value)}" for key, value in _fields(record).items()]
        line = " ".join(parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = dict(_fields(record))
        line.update(time=_time(record), level=record.levelname, logger=record.name, message=record.getMessage())
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        import json  # not loaded until a line needs it

        return json.dumps(line, default=str)


class _Window:
    """How often one message came since the window began."""

    __slots__ = ("began", "record", "seen", "suppressed")

    def __init__(self, began: float) -> None:
        self.began = began
        self.seen = 0
        self.suppressed = 0
        self.record: logging.LogRecord | None = None


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines, and counts repeated warnings instead of writing them all.

    What was held back is told with `suppressed=N`, before the first line after the window or at the end.
    """

    def __init__(self, stream: TextIO | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._monotonic = monotonic
        self._windows: dict[tuple[str, int, str], _Window] = {}
        self._all = _Window(0.0)

    def emit(self, record: logging.LogRecord) -> None:
        now = self._monotonic()
        self._tell_suppressed(now - WINDOW_S)
        if record.levelno < logging.WARNING or self._admit(record, now):
            self._write(record)

    def close(self) -> None:
        self.acquire()
        try:
            self._tell_suppressed(float("inf"))
        finally:
            self.release()
        super().close()

    def _admit(self, record: logging.LogRecord, now: float) -> bool:
        key = (record.name, record.levelno, str(record.msg))
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= _MESSAGES_MAX:
                window = self._all  # so many messages at a time are one flood
            else:
                window = self._windows[key] = _Window(now)
        if now - self._all.began >= WINDOW_S:
            self._all.began, self._all.seen = now, 0
        window.seen += window is not self._all
        self._all.seen += 1
        if window.seen <= REPEATS_MAX and self._all.seen <= LINES_MAX and window is not self._all:
            return True
        window.suppressed += 1
        window.record = record
        return False

    def _tell_suppressed(self, began_before: float) -> None:
        over = [(key, each) for key, each in self._windows.items() if each.began <= began_before]
        for key, _ in over:
            del self._windows[key]
        told = [each for _, each in over]
        if self._all.suppressed and self._all.began <= began_before:
            told.append(self._all)
            self._all = _Window(self._all.began)
        silent = sum(each.suppressed for each in told[REPEATS_MAX:])
        for each in told[:REPEATS_MAX]:
            if each.record is not None:
                each.record.fields = _fields(each.record) | {"suppressed": each.suppressed}
                self._write(each.record)
        if silent:
            message = "more warnings were held back"
            last = logging.LogRecord(__name__, logging.WARNING, "", 0, message, None, None)
            last.fields = {"suppressed": silent}
            self._write(last)

    def _write(self, record: logging.LogRecord) -> None:
        super().emit(record)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found = getattr(record, "fields", None)
    return found if isinstance(found, dict) else {}


def _time(record: logging.LogRecord) -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{stamp}.{int(record.msecs):03d}Z"


def _one_line(text: str) -> str:
    """Text from a peer must not be able to forge a line of its own."""
    return text if text.isprintable() else _in_quotes(text)[1:-1]


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else _in_quotes(text)


def _in_quotes(text: str) -> str:
    import json

    return json.dumps(text)
