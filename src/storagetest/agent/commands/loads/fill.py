"""Writes a file, or the start of a device, with incompressible data, so that no hole is measured later.

Request: ``path`` (of the file or device), ``size`` (bytes), ``make`` (whether the file may be made),
``seed``.
"""

from __future__ import annotations

import os
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext

__all__ = ["run"]

_FILL = 1 << 20


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Write it; see the module."""
    with job.start_workers(1, lambda _: _Filler(request)) as crew:
        return {"size": crew.call("fill")[0]}


class _Filler:
    """The one worker."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request

    def fill(self) -> int:
        request, size = self.request, self.request["size"]
        pool = fsutil.RandomDataPool(request["seed"], _FILL)
        flags = os.O_WRONLY | (os.O_CREAT if request["make"] else 0)
        descriptor = os.open(os.fsencode(request["path"]), flags, 0o600)
        for place in range(0, size, _FILL):
            fsutil.write_all(descriptor, pool.take(min(_FILL, size - place)))
        fsutil.evict_page_cache(descriptor)
        os.close(descriptor)
        return int(size)
