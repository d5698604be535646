"""Headrace: a commit log that speaks Kafka's protocol, in one Python package.

`with headrace.Broker() as broker:` runs a broker; `headrace.table_path("orders")` is where a table lies. Each is
imported only when it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker
    from headrace.tables.resolving import table_path

__all__ = ["Broker", "__version__", "table_path"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "Broker":
        from headrace.broker.embedded import Broker

        return Broker
    if name == "table_path":
        from headrace.tables.resolving import table_path

        return table_path
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
