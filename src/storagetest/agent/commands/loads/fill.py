"""Write incompressible data to a file, or to the start of a device, so that later phases measure no holes.

Request: ``path`` (of the file or device), ``size`` (bytes), ``make`` (whether the file may be created),
``seed``.
"""

from __future__ import annotations

import os
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext

__all__ = ["run"]

_FILL = 1 << 20


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Write the data; see the module."""
    with context.start_workers(1, lambda _: _FileFiller(request)) as workers:
        return {"size": workers.call("fill")[0]}


class _FileFiller:
    """The worker process that writes the data."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request

    def fill(self) -> int:
        request, size = self.request, self.request["size"]
        pool = fsutil.RandomDataPool(request["seed"], _FILL)
        flags = os.O_WRONLY | (os.O_CREAT if request["make"] else 0)
        descriptor = os.open(os.fsencode(request["path"]), flags, 0o600)
        for offset in range(0, size, _FILL):
            fsutil.write_all(descriptor, pool.take(min(_FILL, size - offset)))
        fsutil.evict_page_cache(descriptor)
        os.close(descriptor)
        return int(size)
