"""The replicas of a broker in a cluster: each partition that has others is led with them, or fetched from its leader.

`Topics` gives a partition its role, as the image says; this follows it. Of a partition that is led here and has other
replicas, `Leading` knows how far they are; one that is led elsewhere is fetched by the `Fetchers`. A partition whose
leader cannot be reached yet waits until the image tells where that broker is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace.broker.partition import FOLLOWER, LEADER, Partition
from headrace.log.partition_log import PartitionLog
from headrace.replication.fetchers import Fetchers
from headrace.replication.image import ClusterImage, Endpoint, ImageDelta, PartitionImage
from headrace.replication.leading import Leading

SINGLE: Final = 1


class Replicas:
    def __init__(
        self,
        leading: Leading,
        fetchers: Fetchers,
        image: Callable[[], ClusterImage],
        listener: str,
    ) -> None:
        """`listener` is the name of the one by which brokers reach each other."""
        self._leading = leading
        self._fetchers = fetchers
        self._image = image
        self._listener = listener
        self._waiting: dict[Partition, PartitionImage] = {}  # for their leader's address
        self._followed: dict[Partition, PartitionImage] = {}
        self._alone: set[PartitionLog] = set()  # led here without any other replica

    def placed(self, partition: Partition, image: PartitionImage) -> None:
        """It has this role now."""
        place = (partition.topic, partition.index)
        key = (partition.topic_id.bytes, partition.index)
        self._waiting.pop(partition, None)
        self._followed.pop(partition, None)
        log = partition.local
        if partition.role == LEADER and log is not None:
            self._fetchers.leave(key)
            if len(image.replicas) > SINGLE:
                self._share(log)
                self._leading.lead(place, image, log)
            else:
                self._leading.leave(place)
                self._alone.add(log)
                if not log.commits_alone:
                    log.commit_alone()
            return
        self._leading.leave(place)
        if partition.role != FOLLOWER or log is None:
            self._fetchers.leave(key)
            return
        endpoint = self._endpoint(image.leader)
        if endpoint is None:
            self._fetchers.leave(key)
            self._waiting[partition] = image
            return
        self._followed[partition] = image
        self._share(log)
        self._fetchers.follow(key, log, leader=image.leader, endpoint=endpoint, epoch=image.leader_epoch)

    def _share(self, log: PartitionLog) -> None:
        """There are other replicas. What this one has committed alone until now stays committed; a log that was just
        opened knows only what its checkpoint says."""
        if log.commits_alone:
            log.share(is_alone_so_far=log in self._alone)
            self._alone.discard(log)

    def gone(self, partition: Partition) -> None:
        """Its topic is deleted."""
        self._waiting.pop(partition, None)
        self._followed.pop(partition, None)
        if partition.local is not None:
            self._alone.discard(partition.local)
        self._leading.leave((partition.topic, partition.index))
        self._fetchers.leave((partition.topic_id.bytes, partition.index))

    def changed(self, before: ClusterImage, delta: ImageDelta) -> None:
        """Brokers have come, gone or moved."""
        if not delta.brokers:
            return
        again: dict[Partition, PartitionImage] = dict(self._waiting)
        for number in delta.brokers:
            old = before.brokers.get(number)
            if old is None or old.endpoints.get(self._listener) != self._endpoint(number):
                self._fetchers.moved(number)
                again.update({each: image for each, image in self._followed.items() if image.leader == number})
        for partition, image in again.items():
            self.placed(partition, image)
        self._leading.brokers_changed()

    def _endpoint(self, broker: int) -> Endpoint | None:
        found = self._image().brokers.get(broker)
        return found.endpoints.get(self._listener) if found is not None else None
