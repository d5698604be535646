"""Builds `_record_walk.c` with the machine's compiler: an editable install has no native modules, and the tests of
equality need one."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).resolve().parents[3] / "src" / "headrace" / "protocol" / "_record_walk.c"


def missing_compiler() -> str | None:
    """Why it cannot be built here."""
    if shutil.which(_compiler()[0]) is None:
        return f"there is no C compiler here ({_compiler()[0]})"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "Python's headers are not installed"
    return None


def build(directory: Path) -> ModuleType:
    library = directory / "_record_walk.so"
    include = sysconfig.get_paths()["include"]
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{include}")
    subprocess.run([*_compiler(), *flags, str(SOURCE), "-o", str(library)], check=True)
    spec = importlib.util.spec_from_file_location("_record_walk", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compiler() -> list[str]:
    return shlex.split(sysconfig.get_config_var("CC") or "cc")
