"""The logs of these tests are tiny; they are treated as large ones, with all their files."""

import pytest

from headrace.log import partition_log, segment


@pytest.fixture(autouse=True)
def _every_segment_is_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "UNINDEXED_BYTES_MAX", -1)
    monkeypatch.setattr(partition_log, "SMALL_BYTES_MAX", -1)
