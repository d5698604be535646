"""Headrace: from events to tables in one Python package.

`with headrace.Broker() as broker:` runs a broker; `headrace.table_path("orders")` is where a table lies; `topic`,
`table`, `view`, `to_topic` and their kin declare a pipeline. Each is imported only when it is used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker
    from headrace.streaming.declare import (
        changes,
        drop,
        fail,
        for_each_batch,
        materialized,
        pipeline,
        quarantine,
        static,
        stream,
        table,
        to_topic,
        topic,
        view,
        warn,
    )
    from headrace.tables.resolving import table_path

__all__ = [
    "Broker",
    "__version__",
    "changes",
    "drop",
    "fail",
    "for_each_batch",
    "materialized",
    "pipeline",
    "quarantine",
    "static",
    "stream",
    "table",
    "table_path",
    "to_topic",
    "topic",
    "view",
    "warn",
]

__version__ = "0.1.0"

_DECLARE = "headrace.streaming.declare"
_PLACES = {"Broker": "headrace.broker.embedded", "table_path": "headrace.tables.resolving"}


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(importlib.import_module(_PLACES.get(name, _DECLARE)), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
