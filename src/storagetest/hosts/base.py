"""What a host is: somewhere to run a command and to leave or fetch a file, always with a deadline.

Rules every kind of host keeps:

1. A command is an argv list; quoting happens once, inside the transport that needs it.
2. Every call has a ``deadline`` in seconds. When it passes, the command and its children are ended on the
   host itself (not only our end of the line) and :class:`DeadlineExceeded` is raised.
3. No secret in argv: secrets go by ``stdin`` or by a pushed file of mode 0600.
4. A message of failure names host, command, exit status and the last lines of stderr.
"""

from __future__ import annotations

import shlex
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from storagetest.errors import HostError
from storagetest.hosts.fast_exec import FastExec
from storagetest.hosts.interactive import InteractiveProcess

__all__ = ["Completed", "Host"]

_TAIL_LINES = 8


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended.

    ``seconds`` is wall time as seen from here, including the transport's.
    """

    host: str
    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the exit status was 0."""
        return self.status == 0

    def describe(self) -> str:
        """Say what ran where, how it ended, and the last lines of what it complained about."""
        tail = "\n".join((self.stderr.strip() or self.stdout.strip()).splitlines()[-_TAIL_LINES:])
        return f"{self.host}: `{format_command(self.argv)}` exited {self.status}" + (
            f":\n{tail}" if tail else ""
        )


def format_command(argv: Sequence[str]) -> str:
    """Return a command as messages show it: one line, the rest of a long one left out."""
    line = " ".join(shlex.join(argv).split())
    return line if len(line) <= 240 else f"{line[:240]}…"


class HostResource(Protocol):
    """What :meth:`Host.once` makes."""

    def __init__(self, host: Host) -> None: ...

    def close(self) -> None:
        """End it. Safe to call twice."""


Made = TypeVar("Made", bound=HostResource)
_MAKING = threading.Lock()


class Host(ABC):
    """A client or server. Use as a context manager, or call :meth:`close`."""

    name: str
    expensive_exec = False
    """Whether to start a command there costs much more than here, as a login or a job step does."""
    shortcut: FastExec | None = None
    """What starts commands there more quickly, while it is there."""
    _kept: dict[type, Any] | None = None

    @abstractmethod
    def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float,
        check: bool = True,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> Completed:
        """Run ``argv`` to its end and return what it said.

        ``on_line`` is called with each line of stdout as it arrives. With ``check`` an exit status other than
        0 raises :class:`HostError`; a command that is not installed raises it in any case, and says so.
        Raises :class:`DeadlineExceeded` after ``deadline`` seconds.
        """

    @abstractmethod
    def converse(
        self, argv: Sequence[str], *, deadline: float, first: bytes = b"", name: str = ""
    ) -> AbstractContextManager[InteractiveProcess]:
        """Start ``argv``, say ``first`` to it, and yield the conversation; at its end nothing of it is left.

        ``deadline`` is the most seconds that all of it may last. At the end the command's stdin is closed,
        whereupon it is to end by itself; else it is killed. ``name`` is what messages call it, if not by its
        command line.
        """

    @abstractmethod
    def push(self, data: bytes, path: str, *, mode: int = 0o600, deadline: float = 30.0) -> None:
        """Write ``data`` to the absolute ``path``, atomically, with that ``mode``; parents are made."""

    @abstractmethod
    def pull(self, path: str, *, deadline: float = 30.0) -> bytes:
        """Return the bytes of the file at ``path``; :class:`HostError` where there is none."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the transport, and of what was made by :meth:`once` before it. Safe to call twice."""

    def resource(self, make: type[Made]) -> Made:
        """Return the one ``make(self)`` of this host, made when it is first asked for.

        It is closed before the host is.
        """
        with _MAKING:
            if self._kept is None:
                self._kept = {}
            if make not in self._kept:
                self._kept[make] = make(self)
            made: Made = self._kept[make]
        return made

    def _close_kept(self) -> None:
        """Close what :meth:`once` has made."""
        kept, self._kept = self._kept or {}, None
        for made in kept.values():
            made.close()

    def has(self, command: str, *, deadline: float = 15.0) -> bool:
        """Whether ``command`` is on the host's PATH (the sbin directories included)."""
        return self.run(["sh", "-c", f"command -v {shlex.quote(command)}"], deadline=deadline, check=False).ok

    def read(self, path: str, *, deadline: float = 15.0) -> str | None:
        """Return the text of a small (also virtual) file, stripped, or None where it does not exist."""
        done = self.run(["cat", path], deadline=deadline, check=False)
        return done.stdout.strip() if done.ok else None

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def failed(done: Completed) -> HostError:
    """Return the error for a command that ended badly."""
    return HostError(done.describe())
