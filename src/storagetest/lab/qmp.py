"""Client of QMP, the QEMU Machine Protocol (docs/interop/qmp-spec.txt in QEMU).

Each command uses a new connection, because QEMU serves one QMP client at a time.
"""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

from storagetest.errors import LabError
from storagetest.lab.subprocess_util import connect_unix

_TIMEOUT = 15.0  # seconds


def is_ready(path: Path) -> bool:
    """Return whether a QEMU listens on the socket ``path``."""
    try:
        connect_unix(path, _TIMEOUT).close()
    except OSError:
        return False
    return True


def execute(path: Path, command: str, **arguments: object) -> object:
    """Run ``command`` in the QEMU that listens on the socket ``path``; return the value of its ``return``."""
    message: dict[str, object] = {"execute": command, "arguments": arguments}
    try:
        with connect_unix(path, _TIMEOUT) as connection, connection.makefile("rwb", buffering=0) as stream:
            json.loads(stream.readline())  # the greeting
            _exchange(stream, {"execute": "qmp_capabilities"})
            return _exchange(stream, message)
    except (OSError, ValueError) as error:
        raise LabError(f"{path.name}: QMP command {command} failed: {error}") from error


def _exchange(stream: socket.SocketIO, message: dict[str, object]) -> object:
    stream.write(json.dumps(message).encode() + b"\n")
    while True:
        raw = stream.readline()
        if not raw:
            if message["execute"] == "quit":
                return None
            raise LabError(f"QMP command {message['execute']} failed: QEMU closed the connection")
        response = json.loads(raw)
        if "return" in response:
            return response["return"]
        if "error" in response:
            raise LabError(f"QMP command {message['execute']} failed: {response['error'].get('desc')}")
        # other messages are events


def forwarded(path: Path) -> dict[int, int]:
    """Return the forwarded ports: guest port to host port."""
    return parse_usernet(str(execute(path, "human-monitor-command", **{"command-line": "info usernet"})))


def parse_usernet(text: str) -> dict[int, int]:
    """Parse ``info usernet``: protocol[state], fd, source and port, destination and port, queues."""
    rows = re.findall(r"TCP\[HOST_FORWARD\]\s+\d+\s+\S+\s+(\d+)\s+\S+\s+(\d+)", text)
    return {int(guest): int(host) for host, guest in rows}
