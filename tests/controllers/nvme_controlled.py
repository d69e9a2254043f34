"""The small NVMe/TCP controller, with an administrator: its namespaces are resized, and it restarts.

An action is a word that the program sends to the control port of the server that runs, which acknowledges it
once it is done: ``python nvme_controlled.py FILE grow``. The file has the port.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from nvme_namespace import ControllerConfig
from nvme_subsystem import EVENTS
from nvme_tcp_server import Server

from storagetest.wire.nvme.codes import Feature, LogPage

MORE = 512
"""Blocks by which the namespaces grow."""
NAMESPACE_NOTICES = 1 << 8
"""Of the feature Asynchronous Event Configuration: Namespace Attribute Notices (Base 5.2.26.1.5)."""
WITHIN = 20.0
"""Seconds in which an action is acknowledged."""


class ControlledServer(Server):
    """A server with a second port, at which an administrator acts; ``file`` is to have its number."""

    restarts = 0
    """How often the server that was started last was restarted."""

    def __init__(self, file: Path, *, personality: ControllerConfig | None = None) -> None:
        super().__init__(personality=personality)
        self._file = file
        self._actions = socket.create_server(("127.0.0.1", 0))
        self._admin = threading.Thread(target=self._act, daemon=True)

    def __enter__(self) -> ControlledServer:
        ControlledServer.restarts = 0
        self._file.write_text(str(self._actions.getsockname()[1]), encoding="utf-8")
        super().__enter__()
        self._admin.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._actions.shutdown(socket.SHUT_RDWR)
        self._actions.close()
        self._admin.join(5)
        self._file.unlink(missing_ok=True)
        super().__exit__()

    def _act(self) -> None:
        while True:
            try:
                sock, _ = self._actions.accept()
            except OSError:
                return
            with sock, contextlib.suppress(OSError):
                sock.settimeout(WITHIN)
                word = sock.recv(16)
                {b"grow": self.grow, b"shrink": self.shrink, b"restart": self.restart}[word]()
                sock.sendall(b"done")

    def grow(self) -> None:
        """Make each namespace larger, as far as it is not."""
        self._resize(self.subsystem.personality.blocks + MORE)

    def shrink(self) -> None:
        """Give each namespace its first size again."""
        self._resize(self.subsystem.personality.blocks)

    def _resize(self, blocks: int) -> None:
        with self.subsystem.lock:
            for one in self.subsystem.namespaces.values():
                one.data = one.data[: blocks * one.block_size].ljust(blocks * one.block_size, b"\0")
                one.blocks = blocks
            controllers = [one for one in self.subsystem.controllers.values() if not one.discovery]
            for controller in controllers:
                controller.changed.update(self.subsystem.namespaces)
        event = EVENTS[LogPage.CHANGED_NAMESPACES] | LogPage.CHANGED_NAMESPACES << 16
        for controller in controllers:
            if controller.features.get(Feature.ASYNC_EVENT, 0) & NAMESPACE_NOTICES:
                any(send(event) for send in list(controller.notify))

    def restart(self) -> None:
        """Drop every connection and forget what does not persist through power loss (7.6)."""
        for connection in list(self.connections):
            connection.drop_connection()
        with self.subsystem.lock:
            self.subsystem.controllers.clear()
            for one in self.subsystem.namespaces.values():
                if not one.persistence:
                    one.release()
                    one.registrants.clear()
        ControlledServer.restarts += 1


def controls(file: Path) -> Mapping[str, list[str]]:
    """Return the controls of a targets file, by their names there, for the server of ``file``."""
    names = ("grow", "shrink", "restart")
    return {name: [sys.executable, __file__, str(file), name] for name in names}


def main() -> None:
    """Have a running server do something: FILE and the action."""
    file, action = sys.argv[1:]
    port = int(Path(file).read_text(encoding="utf-8"))
    with socket.create_connection(("127.0.0.1", port), WITHIN) as sock:
        sock.sendall(action.encode())
        if sock.recv(16) != b"done":
            raise SystemExit(f"the server has not acknowledged: {action}")


if __name__ == "__main__":
    main()
