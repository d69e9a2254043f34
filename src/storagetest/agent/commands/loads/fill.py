"""Write incompressible data to a file, or to the start of a device, so that later phases measure no holes.

Request: ``path`` (of the file or device), ``size`` (bytes), ``make`` (whether the file may be created),
``seed``.
"""

from __future__ import annotations

import os
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext

_FILL = 1 << 20


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Write the data; see the module."""
    path = os.fsencode(request["path"])
    return fill_file(context, path, request["size"], seed=request["seed"], create=request["make"])


def fill_file(context: CommandContext, path: bytes, size: int, *, seed: int, create: bool) -> dict[str, Any]:
    """Write ``size`` bytes to ``path`` in a worker; return the command's result."""
    with context.start_workers(1, lambda _: _FileFiller(path, size, seed, create)) as workers:
        workers.call("fill")
    return {"size": size}


class _FileFiller:
    """The worker process that writes the data."""

    def __init__(self, path: bytes, size: int, seed: int, create: bool) -> None:
        self.path, self.size = path, size
        self.pool = fsutil.RandomDataPool(seed, _FILL)
        self.flags = os.O_WRONLY | (os.O_CREAT if create else 0)

    def fill(self) -> None:
        descriptor = os.open(self.path, self.flags, 0o600)
        for offset in range(0, self.size, _FILL):
            fsutil.write_all(descriptor, self.pool.take(min(_FILL, self.size - offset)))
        fsutil.evict_page_cache(descriptor)
        os.close(descriptor)
