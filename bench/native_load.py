"""The clients in C, each compiled on first use, as `compare` does with its own."""

import os
import subprocess
import tempfile
from pathlib import Path

from processes import MeasurementError


def built(name: str) -> Path:
    """`name` is a file beside this one."""
    source = Path(__file__).resolve().with_name(name)
    binary = Path(tempfile.gettempdir()) / f"headrace-{source.stem.replace('_', '-')}-{os.getuid()}"
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        made = subprocess.run(
            ["gcc", "-O2", "-o", str(binary), str(source)], capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise MeasurementError(f"gcc {source.name}: {made.stderr.strip()[-200:]}")
    return binary
