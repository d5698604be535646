"""The time of a turn of the loop: asked of the clock once, however many requests the turn serves."""

from __future__ import annotations

from headrace.core.clock import Clock
from headrace.net.reactor import Reactor


class TurnClock:
    __slots__ = ("_clock", "_now_ms", "_reactor", "_turn")

    def __init__(self, clock: Clock, reactor: Reactor) -> None:
        self._clock = clock
        self._reactor = reactor
        self._turn = -1.0
        self._now_ms = 0

    def now_ms(self) -> int:
        started = self._reactor.turn_started
        if started != self._turn:
            self._turn = started
            self._now_ms = self._clock.now_ms()
        return self._now_ms
