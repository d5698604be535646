"""In how many parts a batch goes into a topic: as many as it began with, whatever the code says by now.

A batch that is run again must fall into the same parts, or rows of it would be written twice and others never. So the
number is noted beside the checkpoint, before the batch writes anything, and holds for that batch alone.
"""

import json

from headrace.core.files import Disk

FILE = "headrace-parts.json"


class BatchParts:
    def __init__(self, checkpoint: str) -> None:
        self._path = f"{checkpoint}/{FILE}"

    def of(self, batch: int, wanted: int) -> int:
        """`wanted` for a batch that begins, what was noted for one that comes again."""
        noted = self._noted()
        if noted is not None and noted[0] == batch:
            return noted[1]
        Disk().replace_file(self._path, json.dumps({"batch": batch, "parts": wanted}).encode())
        return wanted

    def _noted(self) -> tuple[int, int] | None:
        try:
            with open(self._path, encoding="utf-8") as file:
                content = json.load(file)
            return int(content["batch"]), int(content["parts"])
        except FileNotFoundError:
            return None
