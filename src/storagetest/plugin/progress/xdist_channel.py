"""Progress messages of xdist workers: datagrams to a Unix socket of the controller.

A worker never blocks: a datagram that cannot be queued or delivered is lost, and the next one replaces it.
Workers on another machine (``--tx ssh=…``) do not reach the socket, so their progress is not shown.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from storagetest.plugin.progress.model import Message

_MAX_DATAGRAM = 1 << 16


class ProgressListener:
    """The controller's socket: calls ``update`` with worker and message, in a separate thread."""

    def __init__(self, update: Callable[[str, Message | None], None]) -> None:
        self._update = update
        self._directory = Path(tempfile.mkdtemp(prefix="storagetest-"))  # mode 0700: only this user can send
        self.path = str(self._directory / "progress")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._thread = threading.Thread(target=self._run, name="storagetest-progress-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and remove the socket."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(2.0)
        self._socket.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self) -> None:
        while True:
            try:
                data = self._socket.recv(_MAX_DATAGRAM)
            except OSError:
                return
            if not data:
                return
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                datagram = json.loads(data)
                self._update(str(datagram["worker"]), datagram["message"])


def sender(path: str, worker: str) -> Callable[[Message | None], None]:
    """Return a function that sends the messages of ``worker`` to the socket ``path``."""

    def send(message: Message | None) -> None:
        # One socket for each message: there are few, and none has to be closed at the end.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(json.dumps({"worker": worker, "message": message}).encode(), path)

    return send
