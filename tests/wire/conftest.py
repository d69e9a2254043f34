"""The controllers next door are imported by their bare names."""

import sys
from pathlib import Path

CONTROLLERS = str(Path(__file__).parents[1] / "controllers")
if CONTROLLERS not in sys.path:
    sys.path.insert(0, CONTROLLERS)
