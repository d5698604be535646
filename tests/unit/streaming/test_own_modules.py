"""Which modules belong to a pipeline, and that it runs what was read of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline_files import write

from headrace.streaming.loading import LoadedPipeline, load

TABLE = """
orders = hr.topic("orders", schema="a int")

@hr.table
def clean(orders):
    return {value}
"""


@pytest.fixture(autouse=True)
def path_kept() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def loaded(directory: Path, imports: str, modules: dict[str, str], value: str = "orders") -> LoadedPipeline:
    directory.mkdir(exist_ok=True)
    for name, code in modules.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return load(write(directory, imports + TABLE.format(value=value)))


def value(it: LoadedPipeline) -> object:
    return it.nodes[0].function(None)


def test_what_is_imported_is_kept_and_what_lies_there_besides_is_not(tmp_path: Path) -> None:
    it = loaded(tmp_path, "import json, pytest, used\n", {"used.py": "", "unused.py": ""})
    assert list(it.own.sources) == ["used.py"]
    assert it.files == {str(tmp_path / "shop.py"), str(tmp_path / "used.py")}


def test_packages_keep_their_paths_and_what_they_import_of_themselves(tmp_path: Path) -> None:
    modules = {
        "pack/__init__.py": "",
        "pack/base.py": "X = 4",
        "pack/deep/__init__.py": "",
        "pack/deep/top.py": "from ..base import X",
        "space/inner.py": "Y = 5",
    }
    imports = "from pack.deep import top\nimport space.inner\n"
    it = loaded(tmp_path, imports, modules | {"pack/never.py": ""}, "(top.X, space.inner.Y)")
    assert value(it) == (4, 5)
    assert sorted(it.own.sources) == sorted(modules)


def test_what_a_function_imports_when_it_is_called_is_what_was_there_before(tmp_path: Path) -> None:
    modules = {
        "lazy/__init__.py": "",
        "lazy/part.py": "from . import other\nV = other.V",
        "lazy/other.py": "V = 1",
    }
    it = loaded(tmp_path, "def late():\n    from lazy.part import V\n    return V\n", modules, "late()")
    assert it.own.sources.keys() == modules.keys()
    (tmp_path / "lazy" / "other.py").write_text("V = 2")
    assert value(it) == 1


def test_a_module_that_changes_is_read_anew_at_the_next_load_and_leaves_no_byte_code(tmp_path: Path) -> None:
    for number in range(3):  # within a second, and as long as before
        assert value(loaded(tmp_path, "import again\n", {"again.py": f"V = {number}"}, "again.V")) == number
    assert not (tmp_path / "__pycache__").exists()


def test_the_modules_of_another_pipeline_are_not_found(tmp_path: Path) -> None:
    loaded(tmp_path / "one", "import mine\n", {"mine.py": ""})
    with pytest.raises(Exception, match="No module named 'mine'"):
        loaded(tmp_path / "two", "import mine\n", {})


def test_a_directory_that_the_file_adds_to_the_path_is_looked_in(tmp_path: Path) -> None:
    imports = "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))\nimport added\n"
    it = loaded(tmp_path, imports, {"lib/added.py": "from more import V", "lib/more.py": "V = 3"}, "added.V")
    assert value(it) == 3
    assert sorted(it.own.sources) == ["lib/added.py", "lib/more.py"]
    assert it.own.roots == ["", "lib"]
    # The same from elsewhere, as a version runs it.
    kept = tmp_path / "kept"
    kept.mkdir()
    os.rename(tmp_path / "lib", kept / "lib")
    assert value(load(it.file, beside=str(kept))) == 3


def test_what_is_installed_is_no_module_of_a_pipeline(tmp_path: Path) -> None:
    imports = "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'site-packages'))\n"
    there = {"site-packages/foreign.py": "", "headrace/__init__.py": "1 / 0"}
    it = loaded(tmp_path, imports + "import foreign\n", there)
    assert it.own.sources == {}
    sys.modules.pop("foreign")
