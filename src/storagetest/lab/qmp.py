"""QEMU's machine protocol (docs/interop/qmp-spec.txt of QEMU), as much of it as a lab needs.

One connection carries one command: QEMU serves one client at a time, and nobody shall hold the line.
"""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

from storagetest.errors import LabError
from storagetest.lab.process import connected

__all__ = ["execute", "forwarded", "parse_usernet"]

_DEADLINE = 15.0


def execute(path: Path, command: str, **arguments: object) -> object:
    """Run ``command`` in the QEMU that listens at ``path`` and return what it returns."""
    message: dict[str, object] = {"execute": command, "arguments": arguments}
    try:
        with connected(path, _DEADLINE) as connection, connection.makefile("rwb", buffering=0) as line:
            json.loads(line.readline())  # the greeting
            _exchange(line, {"execute": "qmp_capabilities"})
            return _exchange(line, message)
    except (OSError, ValueError) as error:
        raise LabError(f"{path.name}: QEMU does not answer {command}: {error}") from error


def _exchange(line: socket.SocketIO, message: dict[str, object]) -> object:
    line.write(json.dumps(message).encode() + b"\n")
    while True:
        raw = line.readline()
        if not raw:
            if message["execute"] == "quit":
                return None
            raise LabError(f"QEMU closed the line at {message['execute']}")
        answer = json.loads(raw)
        if "return" in answer:
            return answer["return"]
        if "error" in answer:
            raise LabError(f"QEMU refuses {message['execute']}: {answer['error'].get('desc')}")
        # anything else is an event


def forwarded(path: Path) -> dict[int, int]:
    """Return the host's port of each forwarded port of the guest."""
    return parse_usernet(str(execute(path, "human-monitor-command", **{"command-line": "info usernet"})))


def parse_usernet(text: str) -> dict[int, int]:
    """Read QEMU's ``info usernet``: protocol[state], fd, source and port, destination and port, queues."""
    rows = re.findall(r"TCP\[HOST_FORWARD\]\s+\d+\s+\S+\s+(\d+)\s+\S+\s+(\d+)", text)
    return {int(guest): int(host) for host, guest in rows}
