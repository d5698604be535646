"""Whether the hot modules that are installed are the compiled ones, and the same as the interpreted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

INSTALLED = Path(sysconfig.get_paths()["purelib"]) / "headrace"


@pytest.mark.skipif(not INSTALLED.is_dir(), reason="an editable install is interpreted")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_an_installed_broker_runs_compiled_modules(tmp_path):
    code = (
        "import headrace.broker.router as router, headrace.protocol.record_walk as record_walk\n"
        "print(router.__file__ if record_walk.IS_NATIVE else 'the walk over records is interpreted')"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.strip().endswith(sysconfig.get_config_var("EXT_SUFFIX"))


def test_the_source_runs_without_a_compiler(tmp_path):
    code = (
        "import headrace, headrace.broker.router as router\n"
        "with headrace.Broker(data='data') as broker: print(router.__file__, broker.bootstrap_servers)"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert found.stdout.split()[0].endswith("router.py")
