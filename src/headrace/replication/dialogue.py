"""Several questions to ZooKeeper, one after the other, written down as one function.

A dialogue is a generator: it yields a request, and goes on with the answer, or with a ZooKeeperError where it stands.
What a connection that broke left open is such an error too: CONNECTION_LOSS. Dialogues belong to the loop of their
client. One that was `stopped` is never gone on with: its session is over, or its owner wants something else by now.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeVar

from headrace.client.zookeeper.calls import Step, create_request
from headrace.client.zookeeper.errors import TooManyRequestsError, ZooKeeperError
from headrace.client.zookeeper.events import Changed
from headrace.client.zookeeper.on_loop import Done
from headrace.core.errors import InvariantError, OperatorError
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.results import Data, MultiDone, Result

Value = TypeVar("Value")
Dialogue = Generator[requests.Request, Result, Value]


class Asking(Protocol):
    """A ZooKeeper client on a loop."""

    def ask(self, request: requests.Request, done: Done, watcher: Callable[[Changed], None] | None = None) -> None: ...


class Talk:
    """A dialogue that is under way."""

    def __init__(
        self,
        client: Asking,
        dialogue: Dialogue[None],
        call_soon: Callable[[Callable[[], None]], None],
        ended: Callable[[ZooKeeperError | OperatorError | None], None],
    ) -> None:
        """`ended` is called once, unless it is stopped: with the error that the dialogue did not handle, or None."""
        self._client = client
        self._dialogue = dialogue
        self._call_soon = call_soon
        self._ended = ended
        self._is_stopped = False
        self._go_on(lambda: next(dialogue))

    def stop(self) -> None:
        self._is_stopped = True
        self._call_soon(self._dialogue.close)  # never from within itself

    def _go_on(self, resume: Callable[[], requests.Request]) -> None:
        if self._is_stopped:
            return
        try:
            request = resume()
        except StopIteration:
            self._ended(None)
        except (ZooKeeperError, OperatorError) as error:
            self._ended(error)
        else:
            self._ask(request)

    def _ask(self, request: requests.Request) -> None:
        def answered(result: Result, error: ZooKeeperError | TooManyRequestsError | None) -> None:
            if isinstance(error, TooManyRequestsError):
                self._call_soon(lambda: None if self._is_stopped else self._ask(request))
                return
            if error is None:
                error = failure_of(request, result)
            if error is None:
                self._go_on(lambda: self._dialogue.send(result))
            else:
                refused = error
                self._go_on(lambda: self._dialogue.throw(refused))

        self._client.ask(request, answered)


def failure_of(request: requests.Request, result: Result) -> ZooKeeperError | None:
    """Why a multi was not done: the error of the step that failed."""
    if isinstance(request, requests.Multi) and isinstance(result, MultiDone) and result.failed is not None:
        place, code = result.failed
        return ZooKeeperError(code, request.steps[place].path)
    return None


def read_data(path: str) -> Dialogue[Data | None]:
    """What a node holds; None if it is not there."""
    try:
        found = yield requests.Read(codes.GET_DATA, path, False)
    except ZooKeeperError as error:
        if error.code == codes.NO_NODE:
            return None
        raise
    if not isinstance(found, Data):
        raise InvariantError(f"{path}: an answer is {type(found).__name__}, not the data of a znode")
    return found


def multi(steps: Sequence[Step]) -> requests.Multi:
    return requests.Multi(tuple(steps))


def ensured(path: str, data: bytes = b"") -> Dialogue[None]:
    """The node is there, whoever made it."""
    try:
        yield create_request(path, data)
    except ZooKeeperError as error:
        if error.code != codes.NODE_EXISTS:
            raise
