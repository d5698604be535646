"""Arguments of declarations as values: one of the known words, options as Spark takes them. No Spark."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from headrace.streaming.declarations import PipelineError, SourceLine


def one_of(place: SourceLine, name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise PipelineError(place, f"{name}={value!r}: must be one of {', '.join(known)}")


def options_of(options: Mapping[str, Any] | None) -> Mapping[str, str]:
    return MappingProxyType({key: _option(value) for key, value in (options or {}).items()})


def _option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
