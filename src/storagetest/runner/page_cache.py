"""Drop page caches on client and server before a cold measurement, and choose the size of a cold file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from storagetest.errors import HostError, WorkloadError
from storagetest.hosts.base import Host

_DEADLINE = 120.0
_DROP = "sync; echo 3 > /proc/sys/vm/drop_caches"  # Documentation/admin-guide/sysctl/vm.rst
_TOTAL = re.compile(r"^MemTotal:\s+(\d+) kB", re.MULTILINE)


def drop(client: Host, servers: Sequence[Host]) -> str:
    """Drop the page caches of ``client`` and ``servers``; return a description of what was done.

    Raises :class:`WorkloadError` if that of the client cannot be dropped. A failure on a server is in the
    description.
    """
    done = client.run(["sh", "-c", _DROP], deadline=_DEADLINE, check=False)
    if not done.ok:
        raise WorkloadError(
            f"{client.name}: its page cache cannot be dropped, which needs root, so a cold measurement is "
            f"not possible: {done.describe()}"
        )
    report = [f"dropped on {client.name}"]
    for server in servers:
        try:
            server.run(["sh", "-c", _DROP], deadline=_DEADLINE)
            report.append(f"dropped on {server.name}")
        except HostError as error:
            report.append(f"NOT dropped on {server.name}: {str(error).splitlines()[-1]}")
    return ", ".join(report)


def twice_the_memory(hosts: Sequence[Host]) -> int:
    """Return twice the memory of the host with the most, in bytes. Raises :class:`HostError`."""
    most = 0
    for host in hosts:
        match = _TOTAL.search(host.run(["cat", "/proc/meminfo"], deadline=_DEADLINE).stdout)
        most = max(most, int(match[1]) * 1024 if match else 0)
    if not most:
        raise HostError(f"{hosts[0].name}: /proc/meminfo has no MemTotal")
    return 2 * most
