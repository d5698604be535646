"""Log levels as Kafka's BROKER_LOGGER resource shows and sets them. Not kept over a restart, as in Kafka."""

import logging

from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_CONFIG

ROOT = "root"
_BASE = "headrace"
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {level: name for name, level in _LEVELS.items()}


def levels() -> dict[str, str]:
    """The level in force of each logger; `root` is the one that all of Headrace's loggers hang on."""
    found = {ROOT: _level(logging.getLogger(_BASE))}
    for name in sorted(logging.Logger.manager.loggerDict):
        if name.startswith(_BASE + "."):
            found[name] = _level(logging.getLogger(name))
    return found


def check(name: str, level: str) -> None:
    if level not in _LEVELS:
        known = ", ".join(sorted(_LEVELS))
        why = f"as it is not a supported log level. Valid log levels are {known}"
        raise PeerError(INVALID_CONFIG, f"Cannot set the log level of {name} to {level} {why}")
    if name not in levels():
        raise PeerError(INVALID_CONFIG, f"Logger {name} does not exist!")


def set_level(name: str, level: str) -> None:
    _logger(name).setLevel(_LEVELS[level])


def unset_level(name: str) -> None:
    _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_BASE if name == ROOT else name)


def _level(logger: logging.Logger) -> str:
    return _NAMES.get(logger.getEffectiveLevel(), "INFO")
