"""Caches before a measuring: dropped on client and server for ``cold``; and how large a cold file is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from storagetest.errors import HostError, WorkloadError
from storagetest.hosts.base import Host

__all__ = ["drop", "twice_the_memory"]

_DEADLINE = 120.0
_DROP = "sync; echo 3 > /proc/sys/vm/drop_caches"  # Documentation/admin-guide/sysctl/vm.rst
_TOTAL = re.compile(r"^MemTotal:\s+(\d+) kB", re.MULTILINE)


def drop(client: Host, servers: Sequence[Host]) -> str:
    """Drop the caches of ``client`` and of ``servers``; return what was done, in words.

    Raises :class:`WorkloadError` where the client's could not be dropped. A server's that could not are said.
    """
    done = client.run(["sh", "-c", _DROP], deadline=_DEADLINE, check=False)
    if not done.ok:
        raise WorkloadError(
            f"{client.name}: its caches could not be dropped, which takes root, so nothing cold can be "
            f"measured: {done.describe()}"
        )
    said = [f"dropped on {client.name}"]
    for server in servers:
        try:
            server.run(["sh", "-c", _DROP], deadline=_DEADLINE)
            said.append(f"dropped on {server.name}")
        except HostError as error:
            said.append(f"NOT dropped on {server.name}: {str(error).splitlines()[-1]}")
    return ", ".join(said)


def twice_the_memory(hosts: Sequence[Host]) -> int:
    """Return twice the memory of the host that has most, in bytes. Raises :class:`HostError`."""
    most = 0
    for host in hosts:
        match = _TOTAL.search(host.run(["cat", "/proc/meminfo"], deadline=_DEADLINE).stdout)
        most = max(most, int(match[1]) * 1024 if match else 0)
    if not most:
        raise HostError(f"{hosts[0].name}: /proc/meminfo does not say how much memory there is")
    return 2 * most
