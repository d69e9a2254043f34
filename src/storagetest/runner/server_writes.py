"""What a server writes to its own devices while a load runs: counted before and after, exactly.

The published comparison of NFS and iSCSI under PostMark (docs/methodology.md) counts write operations at the
server's disk. A server's devices stand on each other (a mapped device on disks), so of all of them the one
with the most writes is taken. A server that exports memory writes nothing, and that is what is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storagetest.counters import snapshot
from storagetest.counters.block import Block
from storagetest.errors import StoragetestError
from storagetest.hosts.base import Host

__all__ = ["ServerWrites"]

_DEADLINE = 60.0


class ServerWrites:
    """Counts the write operations of ``servers`` from its making to :meth:`count`."""

    def __init__(self, servers: Sequence[Host]) -> None:
        self._before = [(server, _writes(server)) for server in servers]

    def count(self) -> tuple[int, str] | None:
        """Return how many there were and where; None where no server's counters can be read."""
        moved: list[tuple[int, str]] = []
        for server, before in self._before:
            for device, writes in _writes(server).items():
                if device in before:
                    moved.append((max(0, writes - before[device]), f"{device} on {server.name}"))
        return max(moved, default=None)


def _writes(server: Host) -> Mapping[str, int]:
    try:
        said = server.run(["sh", "-c", snapshot.command()], deadline=_DEADLINE, check=False).stdout
    except StoragetestError:
        return {}
    source = Block()
    readings = source.parse(source.select(snapshot.parse(said)))
    return {
        name.removesuffix(" writes"): round(reading.value)
        for name, reading in readings.items()
        if name.endswith(" writes")
    }
