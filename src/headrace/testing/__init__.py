"""A real broker in a test, in milliseconds, with everything that can go wrong at hand.

With pytest the fixtures `headrace_broker` (new for each test) and `headrace_shared_broker` (one a session) are simply
there; elsewhere: `with headrace.testing.Broker() as broker:`. Nothing is imported before it is used, so that the plugin
costs those nothing who do not use it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.broker import Broker
    from headrace.testing.clock import MovableClock

__all__ = ["Broker", "MovableClock"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        from headrace.testing.broker import Broker

        return Broker
    if name == "MovableClock":
        from headrace.testing.clock import MovableClock

        return MovableClock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
