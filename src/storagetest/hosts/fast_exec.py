"""A shortcut into a host: a process there that starts commands, where a login for each would cost much more.

Theory. Over SSH a command costs a session, a login shell and the supervisor's programs. Whoever keeps a
process on the host anyway (the agents' attendant) can start commands from it in a fraction of that. It sets
:attr:`Host.shortcut` for as long as it can, and a host that has one uses it for :meth:`Host.run`.

Rules:

1. A command that was started by a shortcut keeps to all that :mod:`storagetest.hosts._supervised_host` says: its
   deadline is kept on the host, it carries its run's mark, and what is left of it is found by that.
2. A shortcut that cannot be asked says so before anything is started, and the long way is gone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Protocol

from storagetest.hosts._output import ConnectionLost, DeadlinePassed, ExitInfo, OutputBuffer, bounded
from storagetest.hosts.interactive import Channel, ChannelLost, ChannelTimeout

__all__ = ["MOST_STDIN", "FastExec", "collect_output"]

MOST_STDIN = 1 << 20
"""Bytes that a command may be given through a shortcut, which others wait to use."""


class FastExec(Protocol):
    """What a host's shortcut is."""

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes, deadline: float
    ) -> Channel | None:
        """Start ``argv`` with ``env`` added to its environment, and ``stdin`` as all of its input.

        It is told to end after ``deadline`` seconds, and soon killed; its status is then that of timeout(1).
        To close the line does not end it. None where nothing can be started now.
        """

    def is_silent(self) -> None:
        """Take note that the host did not answer: it is not asked again until it has said something."""


def collect_output(line: Channel, *, out: OutputBuffer, err: OutputBuffer, limit: float) -> ExitInfo:
    """Collect what a command says until it ends.

    Raises :class:`Overrun` after ``limit`` seconds, :class:`Lost`, whatever ``out`` raises, and
    :class:`TooMuch`.
    """
    began = time.monotonic()
    with closing(line):
        try:
            while data := line.receive(max(0.0, began + limit - time.monotonic())):
                out.feed(data)
                bounded(out, err)
            status = line.status(max(0.0, began + limit - time.monotonic()))
        except ChannelTimeout:
            raise DeadlinePassed from None
        except ChannelLost as lost:
            raise ConnectionLost(str(lost)) from None
        finally:
            err.feed(line.stderr_text().encode())
    bounded(out, err)
    return ExitInfo(status, time.monotonic() - began)
