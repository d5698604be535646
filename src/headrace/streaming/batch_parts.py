"""In how many parts a batch goes into a topic: as many as it began with, whatever the code says by now.

A batch that is run again must fall into the same parts, or rows of it would be written twice and others never. So the
number is noted beside the checkpoint, before the batch writes anything, and holds for that batch alone.
"""

import json

from headrace.tables.storage import storage_of

FILE = "headrace-parts.json"


class BatchParts:
    def __init__(self, checkpoint: str) -> None:
        self._path = f"{checkpoint}/{FILE}"

    def of(self, batch: int, wanted: int) -> int:
        """`wanted` for a batch that begins, what was noted for one that comes again."""
        noted = self._noted()
        if noted is not None and noted[0] == batch:
            return noted[1]
        storage_of(self._path).write(self._path, json.dumps({"batch": batch, "parts": wanted}).encode())
        return wanted

    def _noted(self) -> tuple[int, int] | None:
        data = storage_of(self._path).read(self._path)
        if data is None:
            return None
        content = json.loads(data)
        return int(content["batch"]), int(content["parts"])
