"""Find the open ports of the known protocols at one address, from a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storagetest.hosts import Host
from storagetest.protocols.base import Protocol

SECONDS = 4
"""Timeout of each TCP handshake in seconds; all run at the same time."""

SCRIPT = r"""
address=$1 limit=$2; shift 2
for port; do
    {
        timeout "$limit" bash -c 'exec 3<>"/dev/tcp/$1/$2"' connect "$address" "$port" 2>/dev/null
        echo "$port $?"
    } &
done
wait
"""


def open_ports(host: Host, address: str, kinds: Mapping[str, type[Protocol[Any]]]) -> dict[str, list[int]]:
    """Return each protocol of ``kinds`` that has open ports at ``address``, with these ports."""
    ports = dict.fromkeys(port for kind in kinds.values() for port in kind.ports)
    argv = ["bash", "-c", SCRIPT, "storagetest-probe", address, str(SECONDS), *map(str, ports)]
    output = host.run(argv, deadline=SECONDS + 30.0).stdout
    is_open = {
        int(fields[0])
        for line in output.splitlines()
        if len(fields := line.split()) == 2 and fields[1] == "0"
    }
    by_protocol = {name: [port for port in kind.ports if port in is_open] for name, kind in kinds.items()}
    return {name: ports for name, ports in by_protocol.items() if ports}


def format_ports(kinds: Mapping[str, type[Protocol[Any]]]) -> str:
    """Return the ports to try, by protocol: ``NFS 2049 111, SMB 445``."""
    return ", ".join(
        f"{kind.title} {' '.join(map(str, kind.ports))}" for kind in kinds.values() if kind.ports
    )
