"""An attendant on a client: commands are run there by a process that is there already.

It saves what starting a command over SSH costs: on an emulated client half a second or more for each, on a
real one some milliseconds. The other side is :mod:`storagetest.agent.commands.attend`.

Rules:

1. A client has one attendant for as long as we are connected; it is started when it is first wanted and ends
   with the host (:meth:`Host.once`).
2. It does one thing at a time. Who comes meanwhile, or where there is no Python that it runs on, is told so
   (:class:`Nobody`), and runs its command as any other.
3. Deadlines and errors are those of :meth:`Host.run`. An attendant that hangs, or is lost, is given up; the
   next command gets a new one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from storagetest.agent.pack import message
from storagetest.errors import DeadlineExceeded, HostError, StoragetestError
from storagetest.hosts.base import Completed, Host, failed, shown
from storagetest.hosts.conversation import Conversation
from storagetest.workloads._agent.run import ARGV

__all__ = ["Attendant", "Attended", "Nobody", "run_quickly"]

_LIFE = 12 * 3600.0
"""Seconds after which an attendant is ended wherever it is: no session of tests takes longer."""
_READY = 60.0
_PATIENCE = 2.0
"""Seconds that a command which is under way has to end when the host is closed."""
_MARGIN = 15.0
"""Seconds after a command's deadline within which the attendant itself must have said so."""


@dataclass(frozen=True, slots=True)
class Attended:
    """What became of a command: exit status (128 + n, if signal n ended it), seconds, and what it left."""

    status: int
    out: str
    err: str
    seconds: float
    before: Mapping[str, str]
    after: Mapping[str, str]
    files: Mapping[str, str]


class Nobody:
    """Nobody attends: the command was not run."""


class Attendant:
    """The controller's side. ``host.once(Attendant)`` is a host's own; it is started when first wanted."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._turn = threading.Lock()
        self._stack = ExitStack()
        self._talk: Conversation | None = None
        self._number = 0
        self._impossible = False

    def run(
        self, argv: Sequence[str], *, deadline: float, count: Sequence[str] = (), files: Sequence[str] = ()
    ) -> Attended | Nobody | None:
        """Run ``argv`` and return what became of it; None where there is no such program.

        The texts of what the globs ``count`` match are read before and after it. ``files`` are names of files
        that it may leave in its working directory. :class:`Nobody`: it was not run.

        Raises :class:`DeadlineExceeded` and :class:`HostError`.
        """
        if self._impossible or not self._turn.acquire(blocking=False):
            return Nobody()
        try:
            talk = self._talking()
            if talk is None:
                return Nobody()
            self._number += 1
            order = {"n": self._number, "argv": list(argv), "deadline": deadline}
            talk.say(json.dumps({**order, "count": list(count), "files": list(files)}))
            said = self._answer(talk, deadline + _MARGIN)
        except BaseException:
            self._give_up()
            raise
        finally:
            self._turn.release()
        return self._read(said, shown(argv), deadline)

    def close(self) -> None:
        """End the attendant, if there is one, and with it a command that another thread still waits for."""
        mine = self._turn.acquire(timeout=_PATIENCE)
        self._give_up()
        if mine:
            self._turn.release()

    def _talking(self) -> Conversation | None:
        if self._talk is None:
            first = message({"command": "attend", "deadline": _LIFE}) + b"\n"
            try:
                talk = self._stack.enter_context(self._host.converse(ARGV, deadline=_LIFE, first=first))
                said = self._hear(talk, _READY)
            except HostError as error:
                if "`python3` is not installed" not in str(error):
                    raise
                said = {"kind": "python"}
            if said.get("kind") == "python":  # missing, or too old
                self._impossible = True
                self._give_up()
                return None
            if said.get("phase") != "ready":
                raise HostError(f"{self._host.name}: the attendant said {said} and did not begin")
            self._talk = talk
        return self._talk

    def _answer(self, talk: Conversation, deadline: float) -> Mapping[str, Any]:
        said = self._hear(talk, deadline)
        if said.get("n") != self._number:
            raise HostError(f"{self._host.name}: the attendant ended: {said.get('message', said)}")
        return said

    def _hear(self, talk: Conversation, deadline: float) -> Mapping[str, Any]:
        while True:
            line = talk.hear(deadline)
            with suppress(ValueError):
                said = json.loads(line)
                if isinstance(said, dict) and "t" in said:  # else a banner's line, say
                    return said

    def _read(self, said: Mapping[str, Any], command: str, deadline: float) -> Attended | None:
        if said.get("missing"):
            return None
        if said.get("late"):
            raise DeadlineExceeded(
                f"{self._host.name}: `{command}` did not end within {deadline:g} s and was killed"
            )
        if said.get("long"):
            raise HostError(f"{self._host.name}: `{command}` printed more than can be read at once")
        names = ("status", "out", "err", "seconds", "before", "after", "files")
        return Attended(**{name: said[name] for name in names})

    def _give_up(self) -> None:
        self._talk = None
        stack, self._stack = self._stack, ExitStack()
        with suppress(StoragetestError):
            stack.close()


def run_quickly(host: Host, argv: Sequence[str], *, deadline: float, check: bool = True) -> str:
    """Return what a small command prints, run by the attendant where that is quicker.

    Raises what :meth:`Host.run` does.
    """
    ran = host.once(Attendant).run(argv, deadline=deadline) if host.far else Nobody()
    if not isinstance(ran, Attended):
        return host.run(argv, deadline=deadline, check=check).stdout
    if check and ran.status:
        raise failed(Completed(host.name, tuple(argv), ran.status, ran.out, ran.err, ran.seconds))
    return ran.out
