"""Whether a young table can be read by its commits instead of as a whole. No Spark here.

A stream of a Delta table begins with what the table holds: Delta makes the table's state from its log, sorts its files,
and fetches them part by part, a dozen jobs for a table of two files. Read from its first commit on, a table that rows
were only added to gives the same rows, and Delta reads nothing but the few commits.
"""

import json
import os

from headrace.streaming.delta_writes import CHANGE_FEED
from headrace.tables.storage import storage_of

COMMITS_MAX = 4  # each is read here, and again by Delta


def only_appended(path: str, *, change_feed: bool, commits_max: int | None = COMMITS_MAX) -> bool:
    """Whether all commits of the table are there, and none of them but the first does anything but add rows. For a
    reader of its `change_feed`, that must have been on from the first one, too."""
    log = os.path.join(path, "_delta_log")
    storage = storage_of(path)
    names = sorted(name for name in storage.names(log) if name.endswith(".json") and name[:-5].isdigit())
    too_many = commits_max is not None and len(names) > commits_max
    if not names or too_many or [int(name[:-5]) for name in names] != list(range(len(names))):
        return False
    for version, name in enumerate(names):
        data = storage.read(os.path.join(log, name))
        if data is None or not _adds_only(data, first=version == 0, change_feed=change_feed):
            return False
    return True


def _adds_only(commit: bytes, *, first: bool, change_feed: bool) -> bool:
    for action in map(json.loads, commit.splitlines()):
        if "remove" in action or "cdc" in action:
            return False
        metadata = action.get("metaData")
        if metadata is None:
            continue
        if not first or (change_feed and metadata.get("configuration", {}).get(CHANGE_FEED) != "true"):
            return False
    return True
