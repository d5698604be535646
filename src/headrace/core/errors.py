"""Whose fault it was decides the class.

`PeerError` is a client's fault and carries the Kafka error code that it is answered with; `OperatorError` is a
setting, a directory or a port, and ends in one line on the screen; `InvariantError` is our bug, and crashes.
A message holds the subject, the value, the limit and the remedy.
"""


class HeadraceError(Exception):
    """The base of everything that Headrace raises on purpose."""


class PeerError(HeadraceError):
    """A request that is answered with a Kafka error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class RecordsError(PeerError):
    """Some records of a batch are to blame; each is named by its place in the batch."""

    def __init__(self, code: int, message: str, records: tuple[tuple[int, str | None], ...]) -> None:
        super().__init__(code, message)
        self.records = records


class OperatorError(HeadraceError):
    """Something that the person who runs the broker can fix: one clear line, a non-zero exit."""


class StorageError(HeadraceError):
    """A disk that fails. What it holds is offline; the rest goes on."""


class AnswerError(HeadraceError):
    """An answer that cannot be written as the protocol has it: our bug, and it fails that one request."""


class InvariantError(HeadraceError):
    """A state that must not exist. Never caught."""
