"""Which leader epoch wrote which offsets of one partition: the first offset of each epoch, in order.

Epochs and start offsets both grow strictly; an entry that contradicts a new one is dropped. A follower or a
consumer that asks where its epoch ended is told where to cut. Nothing here does IO: a method that returns
True has changed what `leader-epoch-checkpoint` should hold.
"""

from bisect import bisect_right

from headrace.core.errors import InvariantError
from headrace.log.checkpoints import decode_lines, encode_lines, malformed

UNDEFINED = -1, -1  # epoch and end offset, where there is no answer


class LeaderEpochs:
    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    @property
    def latest(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def __len__(self) -> int:
        return len(self._epochs)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` writes from `start_offset` on. True if that is news. Called for each append: cheap."""
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and start_offset >= starts[-1]:
            return False
        if epoch < 0 or start_offset < 0:
            raise InvariantError(f"leader epoch {epoch} from offset {start_offset}: neither can be negative")
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            del epochs[-1], starts[-1]
        epochs.append(epoch)
        starts.append(start_offset)
        return True

    def epoch_for(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None before the first entry."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else None

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and the offset where it ended.

        `UNDEFINED` where `epoch` is newer than all known ones, or nothing is known.
        An epoch older than all known ones is answered with itself and the first start: its records are gone.
        """
        if epoch == -1 or not self._epochs:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end
        after = bisect_right(self._epochs, epoch)
        if after == len(self._epochs):
            return UNDEFINED
        return self._epochs[after - 1] if after else epoch, self._starts[after]

    def truncate_from_end(self, offset: int) -> bool:
        """The log now ends at `offset`: epochs that start there or later never were."""
        epochs, starts = self._epochs, self._starts
        changed = False
        while offset >= 0 and starts and starts[-1] >= offset:
            del epochs[-1], starts[-1]
            changed = True
        return changed

    def truncate_from_start(self, offset: int) -> bool:
        """The log now starts at `offset`: the epoch that wrote it starts there, older ones are forgotten."""
        before = bisect_right(self._starts, offset)
        if before == 0 or (before == 1 and self._starts[0] == offset):
            return False
        del self._epochs[: before - 1], self._starts[: before - 1]
        self._starts[0] = offset
        return True

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()

    def encode(self) -> str:
        return encode_lines([f"{epoch} {start}" for epoch, start in self.entries])

    @classmethod
    def decode(cls, text: str, file: str) -> "LeaderEpochs":
        """From a checkpoint's text; `file` is the path that a complaint names."""
        result = cls()
        for number, line in decode_lines(text, file):
            try:
                epoch, start = map(int, line.split())
            except ValueError:
                raise malformed(file, number, line, "`epoch offset`") from None
            if epoch < 0 or start < 0:
                raise malformed(file, number, line, "an epoch and an offset from 0 up")
            result.assign(epoch, start)
        return result
