"""Producer ids in a cluster: blocks of Kafka's znode, one taken ahead, so that nobody waits for ZooKeeper.

What is left of a block when the broker stops is lost, as in Kafka: an id must never be used twice.
"""

from collections.abc import Callable

from headrace.client.zookeeper.calls import create_request
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.core.errors import OperatorError, StorageError
from headrace.protocol.zookeeper import codes, requests
from headrace.replication import znodes
from headrace.replication.dialogue import Asking, Dialogue, Talk, read_data


class ClusterProducerIds:
    def __init__(
        self, broker: int, client: Callable[[], Asking | None], call_soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._broker = broker
        self._client = client
        self._call_soon = call_soon
        self._ahead: range | None = None
        self._is_asking = False

    def fetch(self, count: int) -> None:
        """A block for later, if there is none yet."""
        client = self._client()
        if client is not None and not self._is_asking and self._ahead is None:
            self._is_asking = True
            Talk(client, self._taking(count), self._call_soon, self._ended)

    def take(self, count: int) -> range:
        """A block that nobody else gets; StorageError if it is not here yet."""
        block, self._ahead = self._ahead, None
        self.fetch(count)
        if block is None:
            raise StorageError("no producer ids are at hand: ZooKeeper has not given any yet; try again")
        return block

    def _ended(self, _: ZooKeeperError | OperatorError | None) -> None:
        """After a failure the next one who asks for a block asks ZooKeeper again."""
        self._is_asking = False

    def _taking(self, count: int) -> Dialogue[None]:
        path = znodes.PRODUCER_IDS
        while True:
            found = yield from read_data(path)
            first = znodes.read_producer_ids_end(found.data or b"") + 1 if found is not None else 0
            data = znodes.write_producer_ids(self._broker, first, first + count - 1)
            try:
                if found is None:
                    yield create_request(path, data)
                else:
                    yield requests.SetData(path, data, found.stat.version)
            except ZooKeeperError as error:
                if error.code not in (codes.NODE_EXISTS, codes.BAD_VERSION):
                    raise
                continue  # another broker was quicker
            self._ahead = range(first, first + count)
            return
