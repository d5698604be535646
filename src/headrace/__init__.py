"""Headrace: from events to tables in one Python package.

`with headrace.Broker() as broker:` runs a broker; `topic`, `table`, `view`, `to_topic` and their kin declare a
pipeline; `run` and `check` run one, `spark` is the session that it runs in, `read_table` reads what it made. Each is
imported only when it is used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker
    from headrace.core.errors import HeadraceError
    from headrace.keeper.embedded import Keeper
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
    from headrace.streaming.python_run import Run, check, run
    from headrace.streaming.python_session import spark, spark_conf
    from headrace.streaming.python_tables import Table, read_table
    from headrace.tables.resolving import table_path

__all__ = [
    "Broker",
    "HeadraceError",
    "Keeper",
    "Run",
    "Table",
    "__version__",
    "changes",
    "check",
    "drop",
    "fail",
    "for_each_batch",
    "materialized",
    "pipeline",
    "quarantine",
    "read_table",
    "run",
    "spark",
    "spark_conf",
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
_PLACES = {
    "Broker": "headrace.broker.embedded",
    "Keeper": "headrace.keeper.embedded",
    "HeadraceError": "headrace.core.errors",
    "Run": "headrace.streaming.python_run",
    "Table": "headrace.streaming.python_tables",
    "check": "headrace.streaming.python_run",
    "read_table": "headrace.streaming.python_tables",
    "run": "headrace.streaming.python_run",
    "spark": "headrace.streaming.python_session",
    "spark_conf": "headrace.streaming.python_session",
    "table_path": "headrace.tables.resolving",
}


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(importlib.import_module(_PLACES.get(name, _DECLARE)), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion offers, before anything of it was imported, and without what only this module uses."""
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING", "importlib", "_DECLARE", "_PLACES"})
