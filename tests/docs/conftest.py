"""Documentation, examples and packages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for blocks: importlib mode leaves sys.path alone
