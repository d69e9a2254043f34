"""A second port of a small target, at which an administrator acts.

An action is a word that the program sends to the port of the target that runs, which acknowledges it once it
is done: ``python control_port.py FILE grow``. The file has the number of the port.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ACTIONS = ("grow", "shrink", "restart")
"""What an administrator has a target do."""
WITHIN = 20.0
"""Seconds in which an action is acknowledged."""


class ControlPort:
    """A context manager that carries out ``actions``, by their words, and writes its number to ``file``."""

    def __init__(self, file: Path, actions: Mapping[str, Callable[[], None]]) -> None:
        self._file, self._actions = file, actions
        self._port = socket.create_server(("127.0.0.1", 0))
        self._admin = threading.Thread(target=self._act, daemon=True)

    def __enter__(self) -> ControlPort:
        self._file.write_text(str(self._port.getsockname()[1]), encoding="utf-8")
        self._admin.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._port.shutdown(socket.SHUT_RDWR)
        self._port.close()
        self._admin.join(5)
        self._file.unlink(missing_ok=True)

    def _act(self) -> None:
        while True:
            try:
                sock, _ = self._port.accept()
            except OSError:
                return
            with sock, contextlib.suppress(OSError):
                sock.settimeout(WITHIN)
                self._actions[sock.recv(16).decode()]()
                sock.sendall(b"done")


class Administered:
    """A mixin of a small target, before its class: an administrator acts while it serves."""

    restarts = 0
    """How often the target that was started last was restarted."""
    control: ControlPort

    def administered_by(self, file: Path) -> None:
        """Carry out the methods of :data:`ACTIONS` at a port whose number is in ``file``."""
        self.control = ControlPort(file, {name: getattr(self, name) for name in ACTIONS})

    def __enter__(self) -> Any:
        type(self).restarts = 0
        super().__enter__()  # type: ignore[misc]
        self.control.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.control.__exit__()
        super().__exit__()  # type: ignore[misc]


def controls(file: Path) -> Mapping[str, list[str]]:
    """Return the controls of a targets file, by their names there, for the target of ``file``."""
    return {name: [sys.executable, __file__, str(file), name] for name in ACTIONS}


def main() -> None:
    """Have a running target do something: FILE and the action."""
    file, action = sys.argv[1:]
    port = int(Path(file).read_text(encoding="utf-8"))
    with socket.create_connection(("127.0.0.1", port), WITHIN) as sock:
        sock.sendall(action.encode())
        if sock.recv(16) != b"done":
            raise SystemExit(f"the target has not acknowledged: {action}")


if __name__ == "__main__":
    main()
