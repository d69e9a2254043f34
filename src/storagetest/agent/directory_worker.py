"""Base class of the workers of loads that work in a directory of their own."""

from __future__ import annotations

import os
from random import Random
from typing import Any

from storagetest.agent import fsutil


class DirectoryWorker:
    """Worker number ``index`` of a load in the directory ``root``. ``random`` depends on seed and index."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        self.request, self.root, self.index = request, root, index
        self.random = Random(request["seed"] * 4096 + index)  # noqa: S311  # sizes and order, not a secret

    def setup(self) -> None:
        """Create the directory; first remove what a killed agent has left there."""
        fsutil.remove(self.root)
        os.mkdir(self.root)

    def share(self, total: int) -> int:
        """Return this worker's share of ``total`` things, which all processes divide among themselves."""
        processes = self.request["processes"]
        return int(total // processes + (self.index < total % processes))
