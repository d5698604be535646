import os
from pathlib import Path

import pytest

from headrace.core.cache_directory import cache_directory
from headrace.streaming.cache import replacing


def test_the_environment_says_where_the_cache_is() -> None:
    assert cache_directory({"HEADRACE_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}) == "/own"
    assert cache_directory({"XDG_CACHE_HOME": "/xdg"}) == "/xdg/headrace"
    assert cache_directory({}) == os.path.expanduser("~/.cache/headrace")


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(ZeroDivisionError), replacing(str(path)) as temporary:
        assert Path(temporary).write_text("half") / 0
    assert os.listdir(tmp_path) == []
    with replacing(str(path)) as temporary:
        Path(temporary).write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
