"""One setting's text to its value, refused in the words that Kafka's own tools print.

Topic settings and dynamic broker settings are both described by a `Setting`; who is asked decides the
error code, so a bad value is a `ValueError` here.
"""

import re
from typing import Any

from headrace.core.settings.types import INT_MAX, LONG_MAX, Kind, Setting

_WHOLE = re.compile(r"[+-]?[0-9]+")
_TYPE_MAX = {Kind.INT: INT_MAX, Kind.SHORT: (1 << 15) - 1, Kind.LONG: LONG_MAX}


def parse_config(setting: Setting, text: str) -> Any:
    """The value that `text` stands for: bool, int, float, str, or a tuple for a list."""
    trimmed = text.strip()
    if setting.kind is Kind.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise _invalid(setting, text, "Expected value to be either true or false")
        return trimmed.lower() == "true"
    if setting.kind is Kind.STRING:
        _check_choice(setting, trimmed)
        return trimmed
    if setting.kind is Kind.LIST:
        return _list(setting, trimmed)
    return _number(setting, text)


def _list(setting: Setting, text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(",")) if text else ()
    if not all(items):
        raise ValueError(f"Configuration '{setting.key}' values must not be empty.")
    for item in items:
        _check_choice(setting, item)
    return items


def _number(setting: Setting, text: str) -> int | float:
    value: int | float
    trimmed = text.strip()
    if setting.kind is Kind.DOUBLE:
        try:
            value = float(trimmed)
        except ValueError:
            raise _invalid(setting, text, "Not a number of type DOUBLE") from None
    else:
        most = _TYPE_MAX[setting.kind]
        if not _WHOLE.fullmatch(trimmed) or not -most - 1 <= int(trimmed) <= most:
            raise _invalid(setting, text, f"Not a number of type {setting.kind.name}")
        value = int(trimmed)
    low, high, unlimited = setting.low, setting.high, setting.unlimited
    if value == unlimited:
        return value
    below, above = low is not None and value < low, high is not None and value > high
    if (below or above) and unlimited is not None and high is not None:
        raise _invalid(setting, value, f"Value must be between {low} and {high} or equal to {unlimited}")
    if below:
        raise _invalid(setting, value, f"Value must be at least {low}")
    if above:
        raise _invalid(setting, value, f"Value must be no more than {high}")
    return value


def _check_choice(setting: Setting, text: str) -> None:
    if setting.choices and text not in setting.choices:
        raise _invalid(setting, text, f"String must be one of: {', '.join(setting.choices)}")


def _invalid(setting: Setting, value: object, why: str) -> ValueError:
    return ValueError(f"Invalid value {value} for configuration {setting.key}: {why}")
