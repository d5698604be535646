from pathlib import Path

from headrace.streaming.batch_parts import BatchParts


def test_a_batch_that_comes_again_has_the_parts_it_began_with(tmp_path: Path) -> None:
    assert BatchParts(str(tmp_path)).of(7, 2) == 2
    again = BatchParts(str(tmp_path))
    assert again.of(7, 3) == 2
    assert again.of(8, 3) == 3
    assert BatchParts(str(tmp_path)).of(8, 5) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["headrace-parts.json"]
