"""How xdist's workers tell the controller what they measure: datagrams to a socket of the controller's.

A worker never waits for it: a datagram that finds no room, or nobody, is lost, and the next one says more.
Workers on another machine (``--tx ssh=…``) do not find the socket and stay silent.
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

__all__ = ["ProgressListener", "sender"]

_LARGEST = 1 << 16


class ProgressListener:
    """The controller's end: calls ``take`` with worker and message, in a thread of its own."""

    def __init__(self, take: Callable[[str, Message | None], None]) -> None:
        self._take = take
        self._directory = Path(tempfile.mkdtemp(prefix="storagetest-"))  # 0700: nobody else's messages
        self.path = str(self._directory / "progress")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._thread = threading.Thread(target=self._run, name="storagetest-link", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more, and leave no socket behind."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(2.0)
        self._socket.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self) -> None:
        while True:
            try:
                data = self._socket.recv(_LARGEST)
            except OSError:
                return
            if not data:
                return
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                said = json.loads(data)
                self._take(str(said["worker"]), said["said"])


def sender(path: str, worker: str) -> Callable[[Message | None], None]:
    """Return what a worker tells its messages to."""

    def tell(said: Message | None) -> None:
        # A socket for each message: there are few, and nobody has to close the last one.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(json.dumps({"worker": worker, "said": said}).encode(), path)

    return tell
