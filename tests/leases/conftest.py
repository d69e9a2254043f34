"""The controllers of servers are imported by their bare names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "controllers"))
