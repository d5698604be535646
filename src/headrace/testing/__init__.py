"""A real broker in a test, in milliseconds, with everything that can go wrong at hand; and pipelines over given rows.

With pytest the fixtures `headrace_broker` and `headrace_keeper` (new for each test), `headrace_shared_broker` (one per
session), `headrace_spark` and `headrace_pipeline` are simply there; elsewhere: `with headrace.testing.Broker() as
broker:`. Nothing is imported before it is used, so that the plugin costs those nothing who do not use it.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.broker import Broker
    from headrace.testing.clock import MovableClock
    from headrace.testing.keeper import Keeper
    from headrace.testing.pipeline import PipelineUnderTest
    from headrace.testing.records import Record
    from headrace.testing.spark import spark_for_tests

__all__ = ["Broker", "Keeper", "MovableClock", "PipelineUnderTest", "Record", "spark_for_tests"]

_PLACES = {
    "Broker": "broker",
    "Keeper": "keeper",
    "MovableClock": "clock",
    "PipelineUnderTest": "pipeline",
    "Record": "records",
    "spark_for_tests": "spark",
}


def __getattr__(name: str) -> object:
    if name in _PLACES:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
