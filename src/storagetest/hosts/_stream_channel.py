"""A channel whose streams have to be polled: a child's pipes, a channel of an SSH connection.

A command that has ended may leave a daemon that keeps its stdout open. So the output ends with the stream, or
if :data:`SETTLE` polls after the command's end found nothing more. Polls are counted, not seconds: a thread
that waited long for the CPU has seen nothing of what came meanwhile.
"""

from __future__ import annotations

import time
from abc import abstractmethod

from storagetest.hosts._output import OutputBuffer, check_limit
from storagetest.hosts.interactive import Channel

CHUNK = 1 << 16
POLL = 0.25
"""The longest wait for output in seconds, between two checks whether the command has ended (chosen)."""
SETTLE = 6
"""Polls without output after which the output of an ended command is complete (chosen)."""


class StreamChannel(Channel):
    """Collects the output; a subclass waits for it."""

    def __init__(self) -> None:
        self._stdout = OutputBuffer()
        self._stderr = OutputBuffer()
        self._at_end = False

    @abstractmethod
    def _poll(self, until: float) -> bool:
        """Wait up to :data:`POLL` seconds, collect the available output, and return whether there was any.

        Raises :class:`ChannelTimeout` at ``until`` (``time.monotonic``), :class:`ChannelLost` and
        :class:`OutputTooLarge`.
        """

    @abstractmethod
    def _has_exited(self) -> bool:
        """Return whether the command has ended; its output may be incomplete."""

    def receive(self, limit: float) -> bytes:
        """See :meth:`Channel.receive`. Raises :class:`OutputTooLarge`, also for stderr."""
        until = time.monotonic() + limit
        silent = 0
        while not self._stdout.data and not self._at_end and silent < SETTLE:
            had_exited = self._has_exited()
            silent = 0 if self._poll(until) or not had_exited else silent + 1
        received, self._stdout = self._stdout.data, OutputBuffer()
        return received

    def stderr_text(self) -> str:
        """See :meth:`Channel.stderr_text`."""
        return self._stderr.text

    @staticmethod
    def _add(stream: OutputBuffer, data: bytes) -> None:
        stream.feed(data)
        check_limit(stream)
