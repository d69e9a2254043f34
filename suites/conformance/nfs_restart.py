"""What the restart of a server needs in the cases of NFSv3 and NFSv4: its proof, and the end of grace.

A restart is proved by connections that were made before it: a server that restarts ends all of them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from storagetest.errors import DeadlineExceeded, RemoteProtocolError, TargetDead
from storagetest.polling import wait_until
from storagetest.wire.rpc import RpcConnection
from storagetest.wire.tcp import PeerClosed

LONGEST = 600.0
"""The longest grace period in seconds that the cases wait for (chosen)."""

Run = Callable[[Callable[[], bool], Callable[[], bool]], None]
"""The fixture ``restart_target``: ``run(is_connected, answers)``."""


class RestartableServer(ABC):
    """The server of a case, which can restart it by the target's control."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = 0.0
        self.was_restarted = False

    @abstractmethod
    def connections(self, stack: ExitStack) -> Sequence[RpcConnection]:
        """Return a new connection to each program that the restart ends; ``stack`` closes them."""

    @abstractmethod
    def ask(self) -> None:
        """Ask the server by all of its programs. Raises an error if one of them does not answer."""

    @abstractmethod
    def renew(self) -> None:
        """Renew what the clients of the case hold, if it ends by itself."""

    def restart(self) -> None:
        """Renew what the clients of the case hold, and restart the server; return when it answers.

        Raises ControlError if a connection that was made before does not end.
        """
        self.was_restarted = True
        with ExitStack() as stack:
            before = self.connections(stack)
            for rpc in before:
                rpc.call("NULL")
            self._began = time.monotonic()
            self.renew()
            self._run(lambda: any(is_connected(rpc) for rpc in before), self._answers)

    @property
    def took(self) -> float:
        """Seconds since the restart began."""
        return time.monotonic() - self._began

    def _answers(self) -> bool:
        try:
            self.ask()
        except (TargetDead, RemoteProtocolError, AssertionError):
            return False
        return True


def is_connected(rpc: RpcConnection) -> bool:
    """Whether the server has not ended this connection. A call without a reply is no proof that it has."""
    try:
        rpc.call("NULL")
    except PeerClosed:
        return False
    except RemoteProtocolError:
        return True
    return True


def wait_for_end_of_grace(is_over: Callable[[], bool]) -> None:
    """Wait until ``is_over()``. Raises AssertionError after :data:`LONGEST` seconds."""
    try:
        wait_until(is_over, LONGEST, "the end of the server's grace period", interval=0.2)
    except DeadlineExceeded as error:
        raise AssertionError(str(error)) from None
