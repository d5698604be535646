"""Reads a command line as Kafka's tools do (they use joptsimple): names in, values out, nothing decided.

`--name value`, `--name=value` and `-name value` are one; a value is taken whatever it looks like; an option may
stand many times; no name may be shortened, as Kafka's tools do not let them be. Older spellings of an option are
its `also` names, and behave like it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class OptionError(Exception):
    """A command line that cannot be understood; the message is joptsimple's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. Without `value` it is a flag; `value` says in the usage what the value is."""

    name: str
    help: str
    value: str | None = None
    kind: type[str] | type[int] | type[float] = str
    value_optional: bool = False
    many: bool = False  # all that follows up to the next option is its values
    default: str | int | float | None = None
    also: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # it may stand only beside one of these

    def __str__(self) -> str:
        return f"[{self.name}]"

    @property
    def spellings(self) -> tuple[str, ...]:
        """All of its names as a person types them."""
        return tuple(f"--{name}" if len(name) > 1 else f"-{name}" for name in (self.name, *self.also))


class GivenOptions:
    """What stood on a command line."""

    def __init__(self, options: Sequence[Option]) -> None:
        self._options = {option.name: option for option in options}
        self._values: dict[str, list[Any]] = {}
        self.rest: list[str] = []
        self.order: list[str] = []  # the names of the options as they stood

    def add(self, option: Option, value: Any) -> None:
        self.order.append(option.name)
        held = self._values.setdefault(option.name, [])
        if value is not None:
            held.append(value)

    def has(self, name: str) -> bool:
        if name not in self._options:
            raise KeyError(name)
        return name in self._values

    def all(self, name: str) -> list[Any]:
        default = self._options[name].default
        return self._values.get(name) or ([default] if default is not None else [])

    def one(self, name: str) -> Any:
        """The value, the default, or None; an option that stands twice is an error, as in joptsimple."""
        values = self.all(name)
        if len(values) > 1:
            raise OptionError(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else None


def parse(options: Sequence[Option], args: Sequence[str]) -> GivenOptions:
    named = {name: option for option in options for name in (option.name, *option.also)}
    given = GivenOptions(options)
    waiting = list(reversed(args))
    while waiting:
        arg = waiting.pop()
        if arg == "--":
            given.rest += reversed(waiting)
            break
        if not arg.startswith("-") or arg == "-":
            given.rest.append(arg)
            continue
        name, equals, inline = arg.lstrip("-").partition("=")
        option = named.get(name)
        if option is None or arg.startswith("---"):
            raise OptionError(f"{name or arg} is not a recognized option")
        given.add(option, _value(option, name, inline if equals else None, waiting))
        while option.many and waiting and not waiting[-1].startswith("--"):
            given.add(option, waiting.pop())
    _check_company(options, given)
    return given


def _value(option: Option, name: str, inline: str | None, waiting: list[str]) -> Any:
    if option.value is None:
        if inline:
            raise OptionError(f"Option {name} does not accept an argument")
        return None
    if inline is not None:
        text = inline
    elif option.value_optional:
        if not waiting or waiting[-1].startswith("-"):
            return None
        text = waiting.pop()
    elif waiting:
        text = waiting.pop()
    else:
        raise OptionError(f"Option {name} requires an argument")
    if option.kind is str:
        return text
    try:
        return option.kind(text)
    except ValueError:
        raise OptionError(f"Cannot parse argument '{text}' of option {name}") from None


def _check_company(options: Sequence[Option], given: GivenOptions) -> None:
    for option in options:
        if option.needs and given.has(option.name) and not any(given.has(name) for name in option.needs):
            raise OptionError(f"Option(s) [{option.name}] are unavailable given other options on the command line")
