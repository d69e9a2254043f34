"""Count the write operations of a server's devices while a load runs.

The published comparison of NFS and iSCSI under PostMark (docs/methodology.md) counts write operations at the
server's disk. Devices can be stacked (a mapped device on disks), so the device with the most writes counts. A
server that exports memory writes nothing, and 0 is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storagetest.counters import snapshot
from storagetest.counters.block import Block
from storagetest.errors import StoragetestError
from storagetest.hosts.base import Host

_DEADLINE = 60.0


class ServerWrites:
    """Count the write operations of ``servers`` from construction to :meth:`count`."""

    def __init__(self, servers: Sequence[Host]) -> None:
        self._before = [(server, _writes(server)) for server in servers]

    def count(self) -> tuple[int, str] | None:
        """Return the count and the device; None if no server's counters can be read."""
        moved: list[tuple[int, str]] = []
        for server, before in self._before:
            for device, writes in _writes(server).items():
                if device in before:
                    moved.append((max(0, writes - before[device]), f"{device} on {server.name}"))
        return max(moved, default=None)


def _writes(server: Host) -> Mapping[str, int]:
    try:
        output = server.run(["sh", "-c", snapshot.command()], deadline=_DEADLINE, check=False).stdout
    except StoragetestError:
        return {}
    source = Block()
    readings = source.parse(source.select(snapshot.parse(output)))
    return {
        name.removesuffix(" writes"): round(reading.value)
        for name, reading in readings.items()
        if name.endswith(" writes")
    }
