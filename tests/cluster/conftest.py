"""Clusters: several brokers in this process, over a keeper."""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parent.parent / "wire"))  # raw
