"""Headrace: a commit log that speaks Kafka's protocol, in one Python package.

`with headrace.Broker() as broker:` runs a broker; it is imported only when it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker

__all__ = ["Broker", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "Broker":
        from headrace.broker.embedded import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
