from pathlib import Path

from headrace.streaming.reached import last_committed, usable


def test_a_torn_write_of_the_first_offsets_is_removed_and_offsets_are_not(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    assert usable(str(tmp_path)) == str(tmp_path)  # not begun
    offsets.mkdir()
    (offsets / ".0.899dc77e.tmp").write_text("v1")
    usable(str(tmp_path))
    assert not offsets.exists()
    offsets.mkdir()
    (offsets / "0").write_text("v1")
    (offsets / ".1.899dc77e.tmp").write_text("v1")
    usable(str(tmp_path))
    assert sorted(each.name for each in offsets.iterdir()) == [".1.899dc77e.tmp", "0"]


def test_the_last_committed_batch_is_the_highest_number(tmp_path: Path) -> None:
    assert last_committed(str(tmp_path)) is None
    (tmp_path / "commits").mkdir()
    for name in ("0", "9", "10", ".10.crc"):
        (tmp_path / "commits" / name).write_text("")
    assert last_committed(str(tmp_path)) == 10
