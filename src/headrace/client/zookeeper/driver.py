"""What every client that drives a session has: the session, made from a connect string, and what it is known by."""

import random

from headrace.client.zookeeper.connect_string import parse_connect_string
from headrace.client.zookeeper.session import Resumed, Session
from headrace.client.zookeeper.states import State


class Driver:
    def __init__(self, connect: str, now_ms: int, timeout_ms: int, resumed: Resumed | None) -> None:
        self.connect_string = parse_connect_string(connect)
        self._session = Session(
            self.connect_string, now_ms=now_ms, choose=random.Random(), timeout_ms=timeout_ms, resumed=resumed
        )

    @property
    def state(self) -> State:
        return self._session.state

    @property
    def session_id(self) -> int:
        return self._session.id

    @property
    def credentials(self) -> Resumed:
        """With which another process may go on with this session, or close it."""
        return Resumed(self._session.id, self._session.password)

    @property
    def timeout_ms(self) -> int:
        return self._session.timeout_ms
