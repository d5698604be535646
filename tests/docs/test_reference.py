"""The pages under docs/reference are what the code says."""

from __future__ import annotations

import subprocess
import sys

from blocks import ROOT
from waits import WAIT_S_MAX


def test_the_reference_is_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "docs" / "_reference"), "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert ended.returncode == 0, ended.stderr
