"""Run a program on a client by the agent, if that is faster than a new session.

The other side is :mod:`storagetest.agent.commands.run_program`. Deadlines and errors are those of
:meth:`Host.run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storagetest.errors import DeadlineExceeded, HostError
from storagetest.hosts.base import Host, format_command
from storagetest.workloads._agent.run import run_agent


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """Result of a program: exit status (128 + n, if signal n ended it), seconds, and its files."""

    status: int
    out: str
    err: str
    seconds: float
    before: Mapping[str, str]
    after: Mapping[str, str]
    files: Mapping[str, str]


def run_program(
    host: Host, argv: Sequence[str], *, deadline: float, count: Sequence[str] = (), files: Sequence[str] = ()
) -> ProgramResult | None:
    """Run ``argv`` and return its result; None if the program does not exist.

    The files that the globs ``count`` match are read before and after it. ``files`` are names of files
    that it may leave in its working directory.

    Raises :class:`DeadlineExceeded`, :class:`HostError`, and :class:`WorkloadError` if there is no Python.
    """
    request = {"command": "run_program", "path": argv[0], "argv": list(argv)}
    result = run_agent(host, {**request, "count": list(count), "files": list(files)}, deadline=deadline).extra
    if result.get("missing"):
        return None
    if result.get("late"):
        raise DeadlineExceeded(
            f"{host.name}: `{format_command(argv)}` did not end within {deadline:g} s and was killed"
        )
    if result.get("long"):
        raise HostError(f"{host.name}: `{format_command(argv)}` printed more than can be read at once")
    names = ("status", "out", "err", "seconds", "before", "after", "files")
    return ProgramResult(**{name: result[name] for name in names})
