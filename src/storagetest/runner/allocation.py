"""How many bytes a target's data take on its server, by the target's control ``allocated``."""

from __future__ import annotations

from collections.abc import Sequence

from storagetest.errors import WorkloadError
from storagetest.hosts import Host

_TIMEOUT = 60.0
"""Timeout in seconds of the control command (chosen)."""


def allocated_bytes(server: Host, argv: Sequence[str], *, target: str) -> int:
    """Run the control on ``server`` and return the number that it prints.

    Raises :class:`WorkloadError` if it prints anything else, and HostError if it fails.
    """
    printed = server.run(argv, deadline=_TIMEOUT).stdout.strip()
    if not (printed.isascii() and printed.isdecimal()):
        raise WorkloadError(
            f"{target}: controls.allocated on {server.name} printed {printed[:80]!r}. It has to print one "
            "number: the bytes that the target's data take"
        )
    return int(printed)
