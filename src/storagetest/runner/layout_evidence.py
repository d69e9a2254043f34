"""Count how a session's client does its I/O on an NFS mount: through a pNFS layout, or through the server.

    counter = LayoutCounter(session, path)
    with counter.count() as io:
        session.pwrite(fd, data, 0)
        session.fsync(fd)
    assert io.writes and not io.server_writes

The agent's own process reads the counters, not the worker that makes the calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from storagetest.counters.base import MOUNTS, file_system
from storagetest.counters.mountstats import Mount, find_mount
from storagetest.errors import ClientLacks
from storagetest.runner.syscall_session import SyscallSession


@dataclass(slots=True)
class LayoutIo:
    """I/O of one client: through a layout, and requests to the server. Set at the end of the block."""

    reads: int = 0
    """Reads through a layout."""
    writes: int = 0
    server_reads: int = 0
    """READ requests to the server."""
    server_writes: int = 0
    gets: int = 0
    """LAYOUTGET requests."""
    commits: int = 0
    returns: int = 0

    def __str__(self) -> str:
        return (
            f"{self.writes} writes and {self.reads} reads through a layout, {self.server_writes} WRITE and "
            f"{self.server_reads} READ to the server, {self.gets} LAYOUTGET, {self.commits} LAYOUTCOMMIT, "
            f"{self.returns} LAYOUTRETURN"
        )


class LayoutCounter:
    """Counts for the mount that ``path`` is on, on the client of ``session``."""

    def __init__(self, session: SyscallSession, path: str) -> None:
        self._session = session
        self._path = path

    @contextmanager
    def count(self) -> Iterator[LayoutIo]:
        """Count from the start to the end of the body."""
        io, before = LayoutIo(), self._read()
        try:
            yield io
        finally:
            after = self._read()
            io.reads, io.writes = (
                after.layout_reads - before.layout_reads,
                after.layout_writes - before.layout_writes,
            )

            def calls(*names: str) -> int:
                return after.calls(*names) - before.calls(*names)

            io.server_reads, io.server_writes = calls("READ", "READ_PLUS"), calls("WRITE")
            io.gets, io.commits, io.returns = calls("LAYOUTGET"), calls("LAYOUTCOMMIT"), calls("LAYOUTRETURN")

    def _read(self) -> Mount:
        """Read the counters. Raises :class:`ClientLacks` if the kernel shows no NFS mount there."""
        text = self._session.read_files([MOUNTS]).get(MOUNTS, "")
        point, _ = file_system(text, self._path)
        found = find_mount(text, point)
        if found is None:
            raise ClientLacks(f"{self._session.name}: {MOUNTS} shows no NFS mount for {self._path}")
        return found
