"""An attendant on a client: agents are forked there by a process that is there already.

It saves what starting an agent over SSH costs: on an emulated client two seconds for each, on a real one some
tenths. The other side is :mod:`storagetest.agent.commands.fork_server`.

Rules:

1. A client has one attendant for as long as we are connected; it is started when it is first wanted and ends
   with the host (:meth:`Host.once`), and all agents with it.
2. Agents run side by side; each is an :class:`Errand`, a line as that of any other command.
3. While it is there it is the host's shortcut (:mod:`storagetest.hosts.fast_exec`): it starts commands, too.
4. Where there is no Python that it runs on there is none, and whoever wants an agent starts it as any other
   command. An attendant that is lost is given up; the next errand gets a new one.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from storagetest.agent.bundle import ARGV, message
from storagetest.errors import DeadlineExceeded, HostError, NotInstalled, StoragetestError
from storagetest.hosts.base import Host
from storagetest.hosts.interactive import Channel, ChannelLost, ChannelTimeout, InteractiveProcess

__all__ = ["AgentChannel", "ForkServer", "ProgramChannel"]

_LIFETIME = 12 * 3600.0
"""Seconds after which an attendant is ended wherever it is: no session of tests takes longer."""
_READY = 60.0
_EXIT_TIMEOUT = 5.0
"""Seconds that the agents have to end when the host is closed."""


class AgentChannel(Channel):
    """Our end of one agent's streams; ``begin`` of the attendant makes it. For one thread."""

    def __init__(self, attendant: ForkServer, number: int) -> None:
        self._attendant, self.number = attendant, number
        self._news = threading.Condition()
        self._said: list[bytes] = []
        self._status: int | None = None
        self._stderr = ""
        self._lost = ""

    # What the attendant hears.

    def on_output(self, line: bytes) -> None:
        """Take a line that the agent has said."""
        with self._news:
            self._said.append(line)
            self._news.notify_all()

    def on_exit(self, status: int, complaint: str) -> None:
        """Take the agent's end."""
        with self._news:
            self._status, self._stderr = status, complaint
            self._news.notify_all()

    def on_lost(self, why: str) -> None:
        """Take that nothing more will be heard of the agent."""
        with self._news:
            self._lost = why
            self._news.notify_all()

    # What whoever has the errand asks for.

    def send(self, data: bytes, limit: float) -> None:  # noqa: ARG002  # the attendant takes it at once
        """See :meth:`Line.send`."""
        self._send_order(write=data.decode())

    def receive(self, limit: float) -> bytes:
        """See :meth:`Line.receive`."""
        self._wait(lambda: bool(self._said) or self._status is not None, limit)
        with self._news:
            said, self._said = b"".join(self._said), []
        return said

    def stderr_text(self) -> str:
        """See :meth:`Line.stderr_text`: it comes when the agent has ended."""
        return self._stderr

    def close_stdin(self) -> None:
        """See :meth:`Line.close_stdin`."""
        self._send_order(end=True)

    def status(self, limit: float) -> int:
        """See :meth:`Line.status`."""
        self._wait(lambda: self._status is not None, limit)
        assert self._status is not None
        return self._status

    def kill(self) -> None:
        """Kill the agent and its process group."""
        self._send_order(kill=True)

    def close(self) -> None:
        """See :meth:`Line.close`; an agent that still runs is killed."""
        if self._status is None:
            self.kill()
        self._attendant.forget(self.number)

    def _send_order(self, **what: object) -> None:
        if self._status is None and not self._lost:
            with suppress(StoragetestError):  # which will be heard
                self._attendant.send_line({"n": self.number, **what})

    def _wait(self, until: Any, limit: float) -> None:  # noqa: ANN401
        with self._news:
            if not self._news.wait_for(lambda: until() or self._lost, timeout=limit):
                raise ChannelTimeout
            if not until():
                raise ChannelLost(self._lost)


class ProgramChannel(AgentChannel):
    """Our end of a command's streams, byte for byte. To close it does not end the command."""

    def __init__(self, attendant: ForkServer, number: int) -> None:
        super().__init__(attendant, number)
        self._complained: list[bytes] = []

    def on_output(self, line: bytes) -> None:
        """Take what the command has said, to stdout or to stderr."""
        stream, _, data = line.partition(b" ")
        with self._news:
            (self._said if stream == b"o" else self._complained).append(base64.b64decode(data))
            self._news.notify_all()

    def on_exit(self, status: int, complaint: str) -> None:
        """Take the command's end."""
        with self._news:
            self._complained.append(complaint.encode())
        super().on_exit(status, "")

    def on_lost(self, why: str) -> None:
        """Take that nothing more will be heard of the command; what it means stands in the first line."""
        super().on_lost(why.partition("\n")[0].rstrip(":"))

    def stderr_text(self) -> str:
        """See :meth:`Line.stderr_text`."""
        with self._news:
            return b"".join(self._complained).decode(errors="replace")

    def close(self) -> None:
        """See :meth:`Line.close`."""
        self._attendant.forget(self.number)


AnyChannel = TypeVar("AnyChannel", bound=AgentChannel)


class ForkServer:
    """The controller's side. ``host.once(Attendant)`` is a host's own; it is started when first wanted."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._starting = threading.Lock()
        self._turn = threading.Lock()
        self._stack = ExitStack()
        self._talk: InteractiveProcess | None = None
        self._listener: threading.Thread | None = None
        self._errands: dict[int, AgentChannel] = {}
        self._number = 0
        self._impossible = False
        self._told = threading.Condition()
        self._terminated: set[int] = set()
        self._silent = False

    def available(self) -> bool:
        """Return whether there is one, which is started where it is not; none can be where Python is missing.

        Raises :class:`HostError`.
        """
        with self._starting:
            return not self._impossible and (self._talk is not None or self._start())

    def start_program(self, request: Mapping[str, Any], *, deadline: float) -> AgentChannel | None:
        """Have an agent forked that ends within ``deadline`` seconds; None where none can be.

        Raises :class:`HostError`.
        """
        if not self.available():
            return None
        errand = self._new(AgentChannel)
        self.send_line({"n": errand.number, "agent": dict(request), "deadline": deadline})
        return errand

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes, deadline: float
    ) -> ProgramChannel | None:
        """Start a command, where the attendant is there: see :meth:`Shortcut.start`."""
        if self._talk is None or self._silent:
            return None
        started = self._new(ProgramChannel)
        text = base64.b64encode(stdin).decode()
        order = {"program": list(argv), "env": dict(env), "stdin": text, "deadline": deadline}
        try:
            self.send_line({"n": started.number, **order})
        except StoragetestError:  # it cannot have begun: no whole line has come there
            started.close()
            return None
        return started

    def _new(self, kind: type[AnyChannel]) -> AnyChannel:
        with self._turn:
            self._number += 1
            errand = self._errands[self._number] = kind(self, self._number)
        return errand

    def send_line(self, order: Mapping[str, Any]) -> None:
        """Tell the attendant something. Raises :class:`HostError`."""
        with self._turn:
            if self._talk is None:
                raise HostError(f"{self._host.name}: its attendant is gone")
            try:
                self._talk.send_line(json.dumps(order))
            except DeadlineExceeded:
                self._talk.abandon()  # a part of a line may have gone, and what came next would be its rest
                raise

    def terminate(self, pid: int, limit: float) -> None:
        """Send TERM to the agent of that process id. Raises :class:`HostError` if that takes longer."""
        self.send_line({"term": pid})
        with self._told:
            if not self._told.wait_for(lambda: pid in self._terminated, timeout=limit):
                self.is_silent()
                raise HostError(f"{self._host.name}: its attendant said nothing for {limit:g} s")
            self._terminated.discard(pid)

    def is_silent(self) -> None:
        """Take note that it did not answer in time: its host may be dead; nobody waits for it at the end."""
        self._silent = True

    def forget(self, number: int) -> None:
        """Hear nothing more of an agent."""
        with self._turn:
            self._errands.pop(number, None)

    def close(self) -> None:
        """End the attendant, if there is one, and with it the agents that others still wait for."""
        with self._starting:
            self._host.shortcut = None
            if self._silent and self._talk is not None:
                self._talk.abandon()
            with suppress(StoragetestError):
                self.send_line({"shutdown": True})
            if self._listener is not None:
                self._listener.join(_EXIT_TIMEOUT)
            self._reset("it was ended, as its host is closed")

    def _start(self) -> bool:
        self._reset("")  # what is left of one that was lost
        first = message({"command": "fork_server", "deadline": _LIFETIME}) + b"\n"
        try:
            talk = self._stack.enter_context(
                self._host.converse(ARGV, deadline=_LIFETIME, first=first, name="its attendant")
            )
            said = _parse_message(talk.read_line(_READY))
            while said is None:  # a banner's line, say
                said = _parse_message(talk.read_line(_READY))
        except NotInstalled:
            said = {"kind": "python"}
        except HostError as error:
            self._reset(str(error))
            raise
        if said.get("kind") == "python":  # missing, or too old
            self._impossible = True
            self._reset("")
            return False
        if said.get("phase") != "ready":
            self._reset("")
            raise HostError(f"{self._host.name}: the attendant said {said} and did not begin")
        talk.enable_full_duplex()
        self._talk = talk
        self._host.shortcut = self
        self._listener = threading.Thread(
            target=self._read_loop, args=(talk,), name=f"attendant-{self._host.name}", daemon=True
        )
        self._listener.start()
        return True

    def _read_loop(self, talk: InteractiveProcess) -> None:
        """Hand on what agents say, until the attendant ends."""
        try:
            while True:
                self._dispatch(talk.read_line(_LIFETIME))
        except StoragetestError as error:
            why = str(error).removeprefix(f"{self._host.name}: ")
        except Exception as error:  # a thread's exception would be lost
            why = f"its attendant: {type(error).__name__}: {error}"
        with self._turn:
            if self._talk is talk:
                self._talk = None
            errands, self._errands = self._errands, {}
        for errand in errands.values():
            errand.on_lost(why)

    def _dispatch(self, line: str) -> None:
        self._silent = False
        number, blank, rest = line.partition(" ")
        if blank and number.isdigit():
            errand = self._errands.get(int(number))
            if errand is not None:
                errand.on_output(rest.encode() + b"\n")
            return
        said = _parse_message(line) or {}
        if "terminated" in said:
            with self._told:
                self._terminated.add(said["terminated"])
                self._told.notify_all()
        errand = self._errands.get(said.get("ended", 0))
        if errand is not None:
            errand.on_exit(said["status"], said["stderr"])

    def _reset(self, why: str) -> None:
        with self._turn:
            self._talk = None
            errands, self._errands = self._errands, {}
        for errand in errands.values():
            errand.on_lost(why)
        stack, self._stack = self._stack, ExitStack()
        with suppress(StoragetestError):
            stack.close()


def _parse_message(line: str) -> dict[str, Any] | None:
    """Return what the attendant itself says, or None."""
    with suppress(ValueError):
        said = json.loads(line)
        if isinstance(said, dict) and "t" in said:
            return said
    return None
