"""Fork server on a client: one agent process per client that forks all other agents and starts programs.

It saves the start of an agent over SSH, which takes two seconds on an emulated client and some tenths on a
real one. The other side is :mod:`storagetest.agent.commands.fork_server`.

Rules:

1. A client has one fork server while it is connected. It is started at its first use and ends with the host
   (:meth:`Host.resource`), with all its agents.
2. Agents run concurrently; each is an :class:`AgentChannel`, a channel like that of any command.
3. While it runs it is the host's :mod:`storagetest.hosts.fast_exec`: it starts commands, too.
4. A client without a suitable Python has none, and an agent is started like any other command. A lost fork
   server is replaced at the next use.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any, TypeVar

from storagetest.agent.bundle import ARGV, message
from storagetest.errors import DeadlineExceeded, HostError, NotInstalled, StoragetestError
from storagetest.hosts.base import Host
from storagetest.hosts.fast_exec import MeasuredChannel, Readings, Surroundings
from storagetest.hosts.interactive import Channel, ChannelLost, ChannelTimeout, InteractiveProcess

_LIFETIME = 12 * 3600.0
"""Deadline in seconds of a fork server; no test run takes longer."""
_READY = 60.0
_EXIT_TIMEOUT = 5.0
"""Seconds that the agents have to end when the host is closed."""


class AgentChannel(Channel):
    """The controller's end of one agent's streams. Not thread-safe."""

    def __init__(self, server: ForkServer, number: int) -> None:
        self._server, self.number = server, number
        self._news = threading.Condition()
        self._stdout: list[bytes] = []
        self._status: int | None = None
        self._stderr = ""
        self._lost = ""

    # Called by the reader of the fork server.

    def on_output(self, line: bytes) -> None:
        """Take a line of the agent's stdout."""
        with self._news:
            self._stdout.append(line)
            self._news.notify_all()

    def on_exit(self, ended: Mapping[str, Any]) -> None:
        """Take the message about the agent's end, with its ``status`` and ``stderr``."""
        with self._news:
            self._status, self._stderr = ended["status"], ended["stderr"]
            self._news.notify_all()

    def on_lost(self, reason: str) -> None:
        """Take the reason why the agent is lost."""
        with self._news:
            self._lost = reason
            self._news.notify_all()

    # Called by the user of the channel.

    def send(self, data: bytes, limit: float) -> None:  # noqa: ARG002  # the fork server reads it immediately
        """See :meth:`Channel.send`."""
        self._send_order(write=data.decode())

    def receive(self, limit: float) -> bytes:
        """See :meth:`Channel.receive`."""
        self._wait(lambda: bool(self._stdout) or self._status is not None, limit)
        with self._news:
            reply, self._stdout = b"".join(self._stdout), []
        return reply

    def stderr_text(self) -> str:
        """See :meth:`Channel.stderr_text`: it comes when the agent has ended."""
        return self._stderr

    def close_stdin(self) -> None:
        """See :meth:`Channel.close_stdin`."""
        self._send_order(end=True)

    def status(self, limit: float) -> int:
        """See :meth:`Channel.status`."""
        self._wait(lambda: self._status is not None, limit)
        assert self._status is not None
        return self._status

    def kill(self) -> None:
        """Kill the agent and its process group."""
        self._send_order(kill=True)

    def close(self) -> None:
        """See :meth:`Channel.close`; an agent that still runs is killed."""
        if self._status is None:
            self.kill()
        self._server.forget(self.number)

    def _send_order(self, **order: object) -> None:
        if self._status is None and not self._lost:
            with suppress(StoragetestError):  # its error is reported by the channel
                self._server.send_line({"n": self.number, **order})

    def _wait(self, until: Any, limit: float) -> None:  # noqa: ANN401
        with self._news:
            if not self._news.wait_for(lambda: until() or self._lost, timeout=limit):
                raise ChannelTimeout
            if not until():
                raise ChannelLost(self._lost)


class ProgramChannel(AgentChannel, MeasuredChannel):
    """The controller's end of a command's streams, byte for byte. Closing it does not end the command."""

    def __init__(self, server: ForkServer, number: int) -> None:
        super().__init__(server, number)
        self._stderr_chunks: list[bytes] = []
        self._readings: Readings | None = None

    def on_output(self, line: bytes) -> None:
        """Take output of the command, on stdout or stderr."""
        stream, _, data = line.partition(b" ")
        with self._news:
            (self._stdout if stream == b"o" else self._stderr_chunks).append(base64.b64decode(data))
            self._news.notify_all()

    def on_exit(self, ended: Mapping[str, Any]) -> None:
        """Take the command's exit status, and the ``readings`` of a measured one."""
        with self._news:
            self._stderr_chunks.append(ended["stderr"].encode())
            if "readings" in ended:
                self._readings = Readings(**ended["readings"])
        super().on_exit({**ended, "stderr": ""})

    def readings(self) -> Readings | None:
        """See :meth:`MeasuredChannel.readings`."""
        return self._readings

    def on_lost(self, reason: str) -> None:
        """Take the reason why the command is lost; its first line suffices."""
        super().on_lost(reason.partition("\n")[0].rstrip(":"))

    def stderr_text(self) -> str:
        """See :meth:`Channel.stderr_text`."""
        with self._news:
            return b"".join(self._stderr_chunks).decode(errors="replace")

    def close(self) -> None:
        """See :meth:`Channel.close`."""
        self._server.forget(self.number)


AnyChannel = TypeVar("AnyChannel", bound=AgentChannel)


class ForkServer:
    """The controller's side; ``host.resource(ForkServer)`` is that of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._starting = threading.Lock()
        self._turn = threading.Lock()
        self._stack = ExitStack()
        self._process: InteractiveProcess | None = None
        self._listener: threading.Thread | None = None
        self._channels: dict[int, AgentChannel] = {}
        self._number = 0
        self._unavailable = False
        self._term_condition = threading.Condition()
        self._terminated: set[int] = set()
        self._silent = False

    def available(self) -> bool:
        """Start the fork server unless it runs; return False if the client has no suitable Python.

        Raises :class:`HostError`.
        """
        with self._starting:
            return not self._unavailable and (self._process is not None or self._start())

    def start_program(self, request: Mapping[str, Any], *, deadline: float) -> AgentChannel | None:
        """Fork an agent that ends within ``deadline`` seconds; None without a fork server.

        Raises :class:`HostError`.
        """
        if not self.available():
            return None
        channel = self._new(AgentChannel)
        self.send_line({"n": channel.number, "agent": dict(request), "deadline": deadline})
        return channel

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes, deadline: float
    ) -> ProgramChannel | None:
        """Start a command if the fork server runs: see :meth:`FastExec.start`."""
        return self._start_command(argv, env, stdin, deadline, {})

    def start_measured(
        self, argv: Sequence[str], *, env: Mapping[str, str], deadline: float, surroundings: Surroundings
    ) -> ProgramChannel | None:
        """Start a measured command if the fork server runs: see :meth:`FastExec.start_measured`."""
        return self._start_command(argv, env, b"", deadline, asdict(surroundings))

    def _start_command(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        stdin: bytes,
        deadline: float,
        more: Mapping[str, Any],
    ) -> ProgramChannel | None:
        if self._process is None or self._silent:
            return None
        started = self._new(ProgramChannel)
        text = base64.b64encode(stdin).decode()
        order = {"program": list(argv), "env": dict(env), "stdin": text, "deadline": deadline}
        try:
            self.send_line({"n": started.number, **order, **more})
        except StoragetestError:  # it cannot have begun: no whole line has come there
            started.close()
            return None
        return started

    def _new(self, kind: type[AnyChannel]) -> AnyChannel:
        with self._turn:
            self._number += 1
            channel = self._channels[self._number] = kind(self, self._number)
        return channel

    def send_line(self, order: Mapping[str, Any]) -> None:
        """Send one order to the fork server. Raises :class:`HostError`."""
        with self._turn:
            if self._process is None:
                raise HostError(f"{self._host.name}: its fork server has ended")
            try:
                self._process.send_line(json.dumps(order))
            except DeadlineExceeded:
                self._process.abandon()  # a part of the line may have been sent
                raise

    def terminate(self, pid: int, limit: float) -> None:
        """Send TERM to the agent of that process id. Raises :class:`HostError` if that takes longer."""
        self.send_line({"term": pid})
        with self._term_condition:
            if not self._term_condition.wait_for(lambda: pid in self._terminated, timeout=limit):
                self.is_silent()
                raise HostError(f"{self._host.name}: its fork server did not respond within {limit:g} s")
            self._terminated.discard(pid)

    def is_silent(self) -> None:
        """Note that it did not respond in time: its host may be dead, and closing does not wait for it."""
        self._silent = True

    def forget(self, number: int) -> None:
        """Remove the channel of an agent."""
        with self._turn:
            self._channels.pop(number, None)

    def close(self) -> None:
        """End the fork server, if it runs, and with it all agents."""
        with self._starting:
            self._host.shortcut = None
            if self._silent and self._process is not None:
                self._process.abandon()
            with suppress(StoragetestError):
                self.send_line({"shutdown": True})
            if self._listener is not None:
                self._listener.join(_EXIT_TIMEOUT)
            self._reset("it was ended because its host is closed")

    def _start(self) -> bool:
        self._reset("")  # remains of a lost fork server
        first = message({"command": "fork_server", "deadline": _LIFETIME}) + b"\n"
        try:
            process = self._stack.enter_context(
                self._host.interactive_exec(ARGV, deadline=_LIFETIME, first=first, name="its fork server")
            )
            reply = _parse_message(process.read_line(_READY))
            while reply is None:  # such as a line of a banner
                reply = _parse_message(process.read_line(_READY))
        except NotInstalled:
            reply = {"kind": "python"}
        except HostError as error:
            self._reset(str(error))
            raise
        if reply.get("phase") != "ready":
            self._reset("")
            self._unavailable = reply.get("kind") == "python"  # missing, or too old
            if self._unavailable:
                return False
            raise HostError(f"{self._host.name}: the fork server sent {reply} and did not start")
        process.enable_full_duplex()
        self._process = process
        self._host.shortcut = self
        self._listener = threading.Thread(
            target=self._read_loop, args=(process,), name=f"fork-server-{self._host.name}", daemon=True
        )
        self._listener.start()
        return True

    def _read_loop(self, process: InteractiveProcess) -> None:
        """Dispatch the output of agents until the fork server ends."""
        try:
            while True:
                self._dispatch(process.read_line(_LIFETIME))
        except StoragetestError as error:
            reason = str(error).removeprefix(f"{self._host.name}: ")
        except Exception as error:  # a thread's exception would be lost
            reason = f"its fork server: {type(error).__name__}: {error}"
        self._lose_channels(process, reason)

    def _dispatch(self, line: str) -> None:
        self._silent = False
        number, blank, rest = line.partition(" ")
        if blank and number.isdigit():
            channel = self._channels.get(int(number))
            if channel is not None:
                channel.on_output(rest.encode() + b"\n")
            return
        reply = _parse_message(line) or {}
        if "terminated" in reply:
            with self._term_condition:
                self._terminated.add(reply["terminated"])
                self._term_condition.notify_all()
        channel = self._channels.get(reply.get("ended", 0))
        if channel is not None:
            channel.on_exit(reply)

    def _lose_channels(self, process: InteractiveProcess | None, reason: str) -> None:
        """Note that ``process`` has ended, and with it all agents."""
        with self._turn:
            if self._process is process:
                self._process = None
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.on_lost(reason)

    def _reset(self, reason: str) -> None:
        self._lose_channels(self._process, reason)
        stack, self._stack = self._stack, ExitStack()
        with suppress(StoragetestError):
            stack.close()


def _parse_message(line: str) -> dict[str, Any] | None:
    """Return a message of the fork server itself, or None."""
    with suppress(ValueError):
        reply = json.loads(line)
        if isinstance(reply, dict) and "t" in reply:
            return reply
    return None
