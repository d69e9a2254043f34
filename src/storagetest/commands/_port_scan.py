"""Which of the known protocols' ports answer at one address, asked from a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storagetest.hosts import Host
from storagetest.protocols.base import Protocol

__all__ = ["answering", "port_list"]

SECONDS = 4
"""How long each handshake may take; all are tried at once."""

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


def answering(host: Host, address: str, kinds: Mapping[str, type[Protocol[Any]]]) -> dict[str, list[int]]:
    """Return the protocols, by name in their order, of which ports answer, and which these are."""
    ports = dict.fromkeys(port for kind in kinds.values() for port in kind.ports)
    argv = ["bash", "-c", SCRIPT, "storagetest-probe", address, str(SECONDS), *map(str, ports)]
    said = host.run(argv, deadline=SECONDS + 30.0).stdout
    good = {
        int(words[0]) for line in said.splitlines() if len(words := line.split()) == 2 and words[1] == "0"
    }
    found = {name: [port for port in kind.ports if port in good] for name, kind in kinds.items()}
    return {name: ports for name, ports in found.items() if ports}


def port_list(kinds: Mapping[str, type[Protocol[Any]]]) -> str:
    """Return the ports that are tried, and for what: ``NFS 2049 111, SMB 445``."""
    return ", ".join(
        f"{kind.title} {' '.join(map(str, kind.ports))}" for kind in kinds.values() if kind.ports
    )
