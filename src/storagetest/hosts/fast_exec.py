"""Fast exec: start commands from a process that already runs on the host, without a login for each.

Theory. Over SSH a command costs a session, a login shell and the supervisor's programs. A long-lived process
on the host (the agents' fork server) starts commands in a fraction of that time. It sets
:attr:`Host.shortcut` while it runs, and :meth:`Host.run` uses it.

Rules:

1. A command that was started this way keeps the rules of :mod:`storagetest.hosts._supervised_host`: its
   deadline is enforced on the host, and it has the environment variable by which its remaining processes are
   found.
2. If the process cannot start the command, :meth:`FastExec.start` returns None before anything is started,
   and the host uses its own transport.
3. A measured command starts in an empty directory in memory, which is removed when it has ended. Counters are
   read immediately before and after it, and the files that it leaves there.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from storagetest.hosts._output import ConnectionLost, DeadlinePassed, ExitInfo, OutputBuffer, check_limit
from storagetest.hosts.interactive import Channel, ChannelLost, ChannelTimeout

MAX_STDIN = 1 << 20
"""Limit of a command's stdin in bytes, because other commands wait for the same channel."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is read around a measured command.

    ``counters`` are globs of files that are read before and after it, ``files`` names of files that it may
    leave in its working directory.
    """

    counters: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Readings:
    """Counters (path → text) before and after a command, its files, and its seconds by the host's clock."""

    seconds: float
    before: Mapping[str, str]
    after: Mapping[str, str]
    files: Mapping[str, str]


class MeasuredChannel(Channel):
    """The channel of a measured command."""

    @abstractmethod
    def readings(self) -> Readings | None:
        """Return what was read when the command has ended; None if it could not be started."""


class FastExec(Protocol):
    """The interface of :attr:`Host.shortcut`."""

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes, deadline: float
    ) -> Channel | None:
        """Start ``argv`` with ``env`` added to its environment, and ``stdin`` as all of its input.

        After ``deadline`` seconds it gets SIGTERM and then SIGKILL; its status is then that of timeout(1).
        Closing the channel does not end it. Returns None if nothing can be started now.
        """

    def start_measured(
        self, argv: Sequence[str], *, env: Mapping[str, str], deadline: float, surroundings: Surroundings
    ) -> MeasuredChannel | None:
        """Start ``argv`` as :meth:`start` does, without stdin, and read ``surroundings``."""

    def is_silent(self) -> None:
        """Mark the host as silent: it gets no request until it sends a message."""


def collect_output(
    channel: Channel, *, out: OutputBuffer, err: OutputBuffer, limit: float, stdin: bytes | None = None
) -> ExitInfo:
    """Send ``stdin``, and collect the output of a command until it ends. None: it has its stdin already.

    Raises :class:`DeadlinePassed` after ``limit`` seconds, :class:`ConnectionLost`, any exception of ``out``,
    and :class:`OutputTooLarge`.
    """
    began = time.monotonic()

    def left() -> float:
        return max(0.0, began + limit - time.monotonic())

    with closing(channel):
        try:
            if stdin is not None:
                channel.send(stdin, left())
                channel.close_stdin()
            while data := channel.receive(left()):
                out.feed(data)
                check_limit(out)
            status = channel.status(left())
        except ChannelTimeout:
            raise DeadlinePassed from None
        except ChannelLost as lost:
            raise ConnectionLost(str(lost)) from None
        finally:
            err.feed(channel.stderr_text().encode())
    check_limit(err)
    return ExitInfo(status, time.monotonic() - began)
