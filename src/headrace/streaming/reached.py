"""Up to where the nodes of a version have read, by their checkpoints: also where a batch changed no row of a table, so
that the table's own history does not tell. No Spark."""

import os
from contextlib import suppress

from headrace.core.errors import HeadraceError
from headrace.streaming.batch_offsets import batch_ranges
from headrace.tables.layout import PipelineLayout
from headrace.tables.positions import Reached
from headrace.tables.reading import open_snapshot
from headrace.tables.storage import is_delta, storage_of


def last_committed(checkpoint: str) -> int | None:
    """The last batch that Spark has seen the end of; None before the first."""
    names = storage_of(checkpoint).names(os.path.join(checkpoint, "commits"))
    return max((int(name) for name in names if name.isdigit()), default=None)


def usable(checkpoint: str) -> str:
    """The same path, for a query to begin or go on with. A query that was stopped while it wrote the offsets of its
    first batch leaves a temporary file, and Spark then refuses to begin: without offsets nothing was read, so what lies
    there means nothing."""
    storage, offsets = storage_of(checkpoint), os.path.join(checkpoint, "offsets")
    names = storage.names(offsets)
    if names and not any(name.isdigit() for name in names):
        storage.remove_tree(offsets)
    return checkpoint


class ReachedNodes:
    """Of one version of a pipeline."""

    def __init__(self, layout: PipelineLayout, version: int, tables: tuple[str, ...]) -> None:
        self._layout = layout
        self._version = version
        self._tables = tables
        self._ids: dict[str, str] | None = None

    def __call__(self, node: str) -> Reached | None:
        checkpoint = self._layout.checkpoint_dir(self._version, node)
        batch = last_committed(checkpoint)
        if batch is None:
            return None
        # Spark forgets old offsets, and a run that goes on may do so in this moment.
        with suppress(HeadraceError, OSError, ValueError):
            return Reached(batch=batch, sources=batch_ranges(checkpoint, batch, self._names()))
        return None

    def _names(self) -> dict[str, str]:
        """The names of the version's tables by their Delta ids."""
        if self._ids is None:
            paths = {name: self._layout.table_dir(self._version, name) for name in self._tables}
            self._ids = {
                str(open_snapshot(path, name=name).table.metadata().id): name
                for name, path in paths.items()
                if is_delta(path)
            }
        return self._ids
