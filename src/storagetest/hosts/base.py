"""The interface of a host: run commands, write and read files, always with a deadline.

Rules of every kind of host:

1. A command is an argv list; quoting happens once, inside the transport that needs it.
2. Every call has a ``deadline`` in seconds. When it passes, the command and its children are killed on the
   host itself (not only the controller's channel is closed), and :class:`DeadlineExceeded` is raised.
3. No secret in argv: secrets are passed by ``stdin`` or by a pushed file of mode 0600.
4. An error message has host, command, exit status and the last lines of stderr.
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
from storagetest.hosts._output import last_lines
from storagetest.hosts.fast_exec import FastExec, Readings, Surroundings
from storagetest.hosts.interactive import InteractiveProcess


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended.

    ``seconds`` is wall time measured by the controller; it includes the transport.
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
        """Return host, command, exit status and the last lines of stderr (or of stdout)."""
        tail = last_lines(self.stderr, self.stdout)
        return f"{self.host}: `{format_command(self.argv)}` exited {self.status}" + (
            f":\n{tail}" if tail else ""
        )


def format_command(argv: Sequence[str]) -> str:
    """Return a command for messages: one line of at most 240 characters."""
    line = " ".join(shlex.join(argv).split())
    return line if len(line) <= 240 else f"{line[:240]}…"


class HostResource(Protocol):
    """An object of :meth:`Host.resource`."""

    def __init__(self, host: Host) -> None: ...

    def close(self) -> None:
        """End it. Safe to call twice."""


Resource = TypeVar("Resource", bound=HostResource)
_RESOURCES_LOCK = threading.Lock()


class Host(ABC):
    """A client or server. Use as a context manager, or call :meth:`close`."""

    name: str
    expensive_exec = False
    """Whether starting a command there is expensive, because of a login or a job step."""
    shortcut: FastExec | None = None
    """Starts commands there faster; None if there is no such process."""
    _resources: dict[type, Any] | None = None

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
        """Run ``argv`` to its end and return its output.

        ``on_line`` is called with each line of stdout as it arrives. With ``check`` an exit status other than
        0 raises :class:`HostError`; a command that is not installed always raises it.
        Raises :class:`DeadlineExceeded` after ``deadline`` seconds.
        """

    @abstractmethod
    def run_measured(
        self, argv: Sequence[str], *, deadline: float, surroundings: Surroundings
    ) -> tuple[Completed, Readings] | None:
        """Run ``argv`` as :meth:`run` does, without ``check``, and read ``surroundings`` around it.

        Returns None, and nothing is run, without a :attr:`shortcut`.
        """

    @abstractmethod
    def interactive_exec(
        self, argv: Sequence[str], *, deadline: float, first: bytes = b"", name: str = ""
    ) -> AbstractContextManager[InteractiveProcess]:
        """Start ``argv``, send ``first``, and yield the process; at the end none of its processes is left.

        ``deadline`` is the maximum time of the whole process in seconds. At the end its stdin is closed; if
        it does not end then, it is killed. ``name`` is its name in messages; the default is the command line.
        """

    @abstractmethod
    def push(self, data: bytes, path: str, *, mode: int = 0o600, deadline: float = 30.0) -> None:
        """Write ``data`` to the absolute ``path``, atomically, with that ``mode``; create missing parents."""

    @abstractmethod
    def pull(self, path: str, *, deadline: float = 30.0) -> bytes:
        """Return the bytes of the file at ``path``. Raises :class:`HostError` if it does not exist."""

    @abstractmethod
    def close(self) -> None:
        """Close the objects of :meth:`resource` and then the transport. Safe to call twice."""

    def resource(self, make: type[Resource]) -> Resource:
        """Return this host's ``make(self)``, made at the first call and closed before the host is closed."""
        with _RESOURCES_LOCK:
            if self._resources is None:
                self._resources = {}
            if make not in self._resources:
                self._resources[make] = make(self)
            resource: Resource = self._resources[make]
        return resource

    def _close_resources(self) -> None:
        """Close the objects of :meth:`resource`."""
        resources, self._resources = self._resources or {}, None
        for resource in resources.values():
            resource.close()

    def has(self, command: str, *, deadline: float = 15.0) -> bool:
        """Return whether ``command`` is on the host's PATH (the sbin directories included)."""
        return self.run(["sh", "-c", f"command -v {shlex.quote(command)}"], deadline=deadline, check=False).ok

    def read(self, path: str, *, deadline: float = 15.0) -> str | None:
        """Return the text of a small (also virtual) file, stripped, or None if it does not exist."""
        done = self.run(["cat", path], deadline=deadline, check=False)
        return done.stdout.strip() if done.ok else None

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def failed(done: Completed) -> HostError:
    """Return the error for a command with a non-zero exit status."""
    return HostError(done.describe())
