"""The image in force, and who is told when it changes. The one owner of it in a broker."""

from collections.abc import Callable

from headrace.replication.image import ClusterImage, ImageDelta

Heard = Callable[[ClusterImage, ImageDelta], None]  # the image before, and what is different now


class Cluster:
    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.on_change: list[Heard] = []

    def apply(self, delta: ImageDelta) -> None:
        before = self.image
        self.image = before.changed(delta)
        for heard in self.on_change:
            heard(before, delta)
