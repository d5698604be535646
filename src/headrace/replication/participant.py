"""One broker's part in a cluster: its session, its registration, what it reads of the tree, and the controller in it.

It feeds the image: what is read of the tree becomes deltas of it. A lost connection changes no role; when the session
has expired the broker has none any more, until it is registered again and has read what the others have decided.
"""

from collections.abc import Callable, Iterator

from headrace.client.zookeeper.on_loop import LoopClient
from headrace.replication.cluster import Cluster
from headrace.replication.controller import Controller
from headrace.replication.dialogue import Asking
from headrace.replication.image import ClusterImage, ImageDelta, TopicImage
from headrace.replication.membership import Membership
from headrace.replication.operations import Operation
from headrace.replication.plan import Wishes, plan
from headrace.replication.tree_reader import TreeReader
from headrace.replication.tree_view import TreeView
from headrace.replication.znodes import Registration

CallSoon = Callable[[Callable[[], None]], None]


class Participant:
    def __init__(
        self,
        broker: int,
        cluster: Cluster,
        *,
        now_ms: Callable[[], int],
        call_soon: CallSoon,
        membership: Callable[[Callable[[Registration], None]], Membership],
        is_unclean: Callable[[TopicImage], bool] = lambda topic: False,
    ) -> None:
        self.cluster = cluster
        self.view = TreeView()
        self.reader = TreeReader(self.view, call_soon, self._read)
        self.membership = membership(self._joined)
        self.controller = Controller(
            broker,
            now_ms=now_ms,
            call_soon=call_soon,
            image=lambda: cluster.image,
            planned=self._planned,
            is_current=lambda: self.reader.is_current,
            read_again=self.reader.read_again,
        )
        self.on_settled: list[Callable[[], None]] = []  # everything that was reported so far has been read
        self.on_expired: list[Callable[[], None]] = []
        self._is_unclean = is_unclean
        self._client: Asking | None = None
        self._session = 0
        self._is_watching = False
        self._has_begun = False

    # ── the session ──────────────────────────────────────────────────────────────────────────────────────────────

    def connected(self, client: LoopClient, session: int, *, is_new: bool) -> None:
        self._client, self._session = client, session
        self._is_watching = self._is_watching and not is_new
        self.membership.connected(client, session)
        if self.membership.is_joined:
            self._follow()

    def disconnected(self) -> None:
        self._client = None
        self.membership.disconnected()
        self.reader.disconnected()
        self.controller.disconnected()

    def expired(self) -> None:
        self.membership.expired()
        for heard in self.on_expired:
            heard()

    def _joined(self, told: Registration) -> None:
        self.cluster.apply(ImageDelta(cluster_id=self.membership.cluster_id))
        self._follow()

    def _follow(self) -> None:
        client = self._client
        if client is not None:
            self.reader.connected(client, is_new=not self._is_watching)
            self._is_watching = True
            self.controller.joined(client, self._session)

    # ── the tree ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self) -> None:
        if not self._has_begun and not self.reader.is_current:
            return  # half a tree says that topics are gone which were only not read yet
        self._has_begun = True
        delta = self.view.delta()
        if delta is not None:
            self.cluster.apply(delta)
        self.controller.image_changed()
        if self.reader.is_current:
            for heard in self.on_settled:
                heard()

    def _planned(self, image: ClusterImage) -> Iterator[Operation]:
        wishes = Wishes(deleted=frozenset(self.view.deleted))
        return plan(image, wishes, is_unclean=self._is_unclean)
