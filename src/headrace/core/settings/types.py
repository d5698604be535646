"""What a setting is: its Kafka keys, type, bounds and help, kept in the metadata of a dataclass field.

Everything that reads, checks, prints or documents settings works from this description, so that a setting is
written down once. Nothing here knows which settings exist.
"""

import dataclasses
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from headrace.core.errors import OperatorError

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
_WHOLE = re.compile(r"[+-]?[0-9]+")


class Kind(IntEnum):
    """Kafka's types of settings; the numbers are the ones that DescribeConfigs carries."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


_RANGE: dict[Kind, tuple[float, float]] = {
    Kind.INT: (-(1 << 31), INT_MAX),
    Kind.SHORT: (-(1 << 15), (1 << 15) - 1),
    Kind.LONG: (-(1 << 63), LONG_MAX),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Another key for the same setting, which counts when no key before it is given."""

    key: str
    kind: Kind = Kind.INT
    scale: int = 1  # the field's units in one of this key's units
    low: float | None = None
    kafka_default: str | None = None  # what Kafka shows when nobody set it; None shows as null
    describe: bool = True  # False: a key of an older Kafka, read but no longer shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The metadata of one field; `key` is the first of its Kafka keys, `aliases` follow in precedence."""

    key: str
    kind: Kind
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    unlimited: int | None = None  # a value below `low` that means "no limit"
    aliases: tuple[Alias, ...] = ()
    null_by_default: bool = False  # Kafka shows null, because an alias or nothing holds the default
    dynamic: bool = False  # Kafka lets it change while the broker runs

    def limit(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        if self.kind in (Kind.STRING, Kind.LIST):
            return "a text" if self.kind is Kind.STRING else "a list, separated by commas"
        noun = "a number" if self.kind is Kind.DOUBLE else "a whole number"
        least, most = _RANGE.get(self.kind, (None, None))
        low = least if self.low is None else self.low
        high = most if self.high is None else self.high
        if high is None or high == most:
            words = noun if low == least else f"{noun} of at least {low}"
        else:
            words = f"{noun} from {low} to {high}"
        return words if self.unlimited is None else f"{words}, or {self.unlimited} for no limit"

    def problem(self, value: Any) -> str | None:
        """Why `value` cannot be this setting, or None when it can."""
        if self.kind is Kind.BOOLEAN:
            return None if isinstance(value, bool) else "is neither true nor false"
        if self.kind in (Kind.STRING, Kind.LIST):
            items = value if isinstance(value, tuple) else split_list(value) if self.kind is Kind.LIST else (value,)
            if not all(isinstance(item, str) for item in items):
                return "is not text"
            wrong = [item for item in items if self.choices and item not in self.choices]
            return "is not known here" if wrong else None
        expected = (int, float) if self.kind is Kind.DOUBLE else int
        if isinstance(value, bool) or not isinstance(value, expected) or value != value:
            return "is not a number" if self.kind is Kind.DOUBLE else "is not a whole number"
        if value == self.unlimited:
            return None
        least, most = _RANGE.get(self.kind, (value, value))
        low = least if self.low is None else self.low
        high = most if self.high is None else self.high
        if value < low:
            return f"is below {low}"
        return f"is above {high}" if value > high else None


def setting(default: Any, key: str, help: str, kind: Kind = Kind.INT, **more: Any) -> Any:
    """A dataclass field that is a setting."""
    described = Setting(key=key, kind=kind, help=help, **more)
    return dataclasses.field(default=default, metadata={"setting": described})


def setting_of(field: "dataclasses.Field[Any]") -> Setting | None:
    found = field.metadata.get("setting")
    return found if isinstance(found, Setting) else None


def split_list(text: str) -> tuple[str, ...]:
    return tuple(item for item in (piece.strip() for piece in text.split(",")) if item)


def parse_value(kind: Kind, text: str) -> Any:
    """Text to value as Kafka reads it; the text itself when it is not of that kind, for `problem` to name."""
    text = text.strip()
    if kind is Kind.BOOLEAN:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind is Kind.LIST:
        return split_list(text)
    if kind is Kind.DOUBLE:
        try:
            return float(text)
        except ValueError:
            return text
    if kind is Kind.STRING:
        return text
    return int(text) if _WHOLE.fullmatch(text) else text


def format_value(value: Any) -> str:
    """Value to text as Kafka prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def refuse(where: str, key: str, text: str, problem: str, limit: str) -> OperatorError:
    """The one form of every complaint about a setting: place, key, value, problem, remedy."""
    prefix = f"{where}: " if where else ""
    return OperatorError(f"{prefix}{key}={text} {problem}; give {limit}")
