"""An attendant: a process on the client that every other agent is forked from.

Theory. On a slow client it is beginning that costs: a session, a login shell, the supervisor, the interpreter
and all that it imports, two seconds on an emulated client. An attendant has that behind it. What is asked of
it is a fork, and many agents talk over its one conversation.

The request has only a deadline, for the whole conversation. Then, a JSON object a line:

- ``n``, ``agent`` (the request of any other command), ``deadline`` (s): begin an agent, number ``n``;
- ``n``, ``program`` (an argv), ``env`` (added to ours), ``stdin`` (all of it, in base 64), ``deadline`` (s):
  start a program, number ``n``, in a session of its own;
- ``n``, ``write``: a text for its stdin;
- ``n``, ``end``: its stdin ends; if it does not by :data:`_PATIENCE` seconds later it is told to (TERM), and
  killed :data:`_GRACE` seconds after that. The same happens at its deadline, which is extended while
  it removes its files (:data:`~storagetest.agent.command_context.CLEANUP_MESSAGE`);
- ``n``, ``kill``: the last of these, now;
- ``term``: TERM to the agent that has this process id, now; progress then has ``terminated``, the id;
- ``shutdown``: the conversation is over.

What an agent prints comes as it is, each line behind its number and a blank. What a program prints is bytes,
not lines: behind its number and a blank there is ``o`` or ``e`` (stdout, stderr), a blank, and base 64. When
either has ended there is a line of progress: ``ended``, its number, with ``status`` (128 + its number, if a
signal ended it; 124 where a program was late; 127 or 126 where there is none that could be started) and
``stderr`` (the end of what an agent wrote to stderr). The conversation is over too when stdin ends, and
all agents and programs end with it.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

from storagetest.agent.command_context import CLEANUP_LIMIT, CLEANUP_MESSAGE, CLEANUP_STALL, CommandContext
from storagetest.agent.dispatch import load_command, run_request
from storagetest.agent.process_markers import kill_marked
from storagetest.agent.worker_pool import load_prctl, set_parent_death_signal

__all__ = ["run"]

_PATIENCE = 0.5
_GRACE = 2.0
_LAST = 1.5
"""Seconds that all agents have when the conversation is over: then the supervisor kills us."""
_CHUNK = 1 << 16
_MOST_CHUNKS = 16
"""More than a pipe holds, so that all is read of who has ended."""
_MOST_STDERR = 1 << 14
_NEVER = float("inf")
_CLEANUP = CLEANUP_MESSAGE.encode()
_MARK = "STORAGETEST_RUN"
"""The supervisor's mark, which all agents have, and what they start; a program has one of its own."""
_LATE = 124  # timeout(1)
_UNKNOWN, _NO_PROGRAM = 127, 126  # env(1)


def run(_request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Do as told until stdin ends."""
    attendant = _ForkServer(job)
    load_prctl()  # once, rather than in each child
    job.progress(phase="ready")
    try:
        while attendant.turn():
            pass
    finally:
        attendant.leave()
    return {"served": attendant.served}


class _AgentProcess:
    """One agent, as its parent sees it."""

    def __init__(self, number: int, pid: int, until: float, streams: tuple[int, int, int]) -> None:
        self.number, self.pid = number, pid
        self.stdin, self.stdout, self.stderr = streams
        self.until, self.steps = until, [signal.SIGTERM, signal.SIGKILL]
        self.last = until + CLEANUP_LIMIT
        self.readable = {self.stdout, self.stderr}
        """The streams that have not ended: poll(2) would report the others again and again (POLLHUP)."""
        self.orders, self.said, self.error_output = bytearray(), bytearray(), b""
        self.ending = self.late = False
        for stream in streams:
            os.set_blocking(stream, False)

    def write(self) -> None:
        """Pass on of its orders what it takes now; end its stdin where no more are to come."""
        try:
            while self.orders:
                del self.orders[: os.write(self.stdin, self.orders)]
        except BlockingIOError:
            return
        except OSError:  # it does not listen any more
            self.orders.clear()
        if self.ending:
            self.close_stdin()

    def read(self) -> bytes:
        """Return the lines that it has said since, each behind its number."""
        for data in self.chunks(self.stderr):
            self.error_output = (self.error_output + data)[-_MOST_STDERR:]
        for data in self.chunks(self.stdout):
            self.said += data
        end = self.said.rfind(b"\n") + 1
        lines = bytes(self.said[:end])
        del self.said[:end]
        if lines.startswith(_CLEANUP) or b"\n" + _CLEANUP in lines:
            self.cleans_up()
        return b"".join(b"%d %b" % (self.number, line) for line in lines.splitlines(keepends=True))

    def cleans_up(self) -> None:
        """Extend the deadline of an agent that removes its files, unless it has been told to end."""
        if len(self.steps) > 1 and not self.ending:
            self.until = max(self.until, min(self.last, time.monotonic() + CLEANUP_STALL + _GRACE))

    def chunks(self, stream: int) -> Iterator[bytes]:
        """Yield what can be read now from stdout or stderr without waiting, up to a limit."""
        if stream in self.readable and not (yield from _chunks(stream)):
            self.readable.discard(stream)

    def ended(self, status: int) -> dict[str, Any]:
        """Return how it has ended, from what waitpid(2) says."""
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        return {"status": code, "stderr": self.error_output.decode("utf-8", "replace")}

    def end(self) -> None:
        """Let it see the end of its orders, and soon hear that it is to end."""
        if not self.ending:
            self.ending = True
            self.until = min(self.until, time.monotonic() + _PATIENCE)
            self.write()

    def press(self) -> None:
        """Take the next step towards its end: what is late, or does not end as told."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, self.steps[0])
        self.until = time.monotonic() + _GRACE if len(self.steps) > 1 else _NEVER
        del self.steps[:-1]

    def close_stdin(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def close(self) -> None:
        self.close_stdin()
        os.close(self.stdout)
        os.close(self.stderr)


class _ChildProgram(_AgentProcess):
    """A program: it is given all its input at once, and what it prints are bytes. ``mark`` is its run's."""

    def __init__(
        self, number: int, pid: int, until: float, streams: tuple[int, int, int], stdin: bytes, mark: str
    ) -> None:
        super().__init__(number, pid, until, streams)
        self.mark = mark
        self.orders += stdin
        self.ending = True
        self.write()

    def read(self) -> bytes:
        """Return what it has said since, in chunks."""
        streams = ((b"o", self.stdout), (b"e", self.stderr))
        said = [(kind, base64.b64encode(data)) for kind, stream in streams for data in self.chunks(stream)]
        return b"".join(b"%d %b %b\n" % (self.number, *chunk) for chunk in said)

    def ended(self, status: int) -> dict[str, Any]:
        """Return how it has ended, as timeout(1) would if it was late."""
        return {**super().ended(status), **({"status": _LATE} if self.late else {})}


class _ForkServer:
    def __init__(self, job: CommandContext) -> None:
        self.served = 0
        self._job = job
        self._agents: dict[int, _AgentProcess] = {}
        self._rest = b""
        self._wake, told = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # the byte in the pipe says it all

    def turn(self) -> bool:
        """Do what there is to be done; whether there may be more."""
        ready = self._waited(stdin=True)
        for agent in list(self._agents.values()):
            self._look_after(agent)
        return time.monotonic() < self._job.until and (0 not in ready or self._listen())

    def leave(self) -> None:
        """End all agents and programs."""
        last = time.monotonic() + _LAST
        marks = [agent.mark for agent in self._agents.values() if isinstance(agent, _ChildProgram)]
        for agent in self._agents.values():
            agent.close_stdin()
            agent.press()
            agent.until = last
        while self._agents:
            self._waited(stdin=False)
            for agent in list(self._agents.values()):
                with suppress(OSError):  # nobody may be listening
                    self._look_after(agent)
                if agent.until == _NEVER:  # killed; one that hangs in the kernel is left to the supervisor
                    self._agents.pop(agent.number, None)
        # What was killed may have left what it had started.
        for mark in [*marks, *([os.environ[_MARK]] if _MARK in os.environ else [])]:
            kill_marked(_MARK, mark)

    def _waited(self, *, stdin: bool) -> set[int]:
        """Wait until there is something to do; return the descriptors that have something."""
        waits = select.poll()
        for descriptor in (self._wake, *((0,) if stdin else ())):
            waits.register(descriptor, select.POLLIN)
        for agent in self._agents.values():
            for stream in agent.readable:
                waits.register(stream, select.POLLIN)
            if agent.orders:
                waits.register(agent.stdin, select.POLLOUT)
        next_step = min([self._job.until, *(agent.until for agent in self._agents.values())])
        found = {one for one, _ in waits.poll(max(0.0, next_step - time.monotonic()) * 1000 + 1)}
        for _ in _chunks(self._wake):
            pass
        return found

    def _listen(self) -> bool:
        data = os.read(0, _CHUNK)
        if not data:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        orders = [json.loads(line) for line in lines]
        for order in orders:
            if "term" in order:
                self._terminate(order["term"])
            elif "shutdown" not in order:
                self._obey(order)
        return not any("shutdown" in order for order in orders)

    def _obey(self, order: dict[str, Any]) -> None:
        number = order["n"]
        if "agent" in order:
            self.served += 1
            self._agents[number] = self._fork(number, order["agent"], time.monotonic() + order["deadline"])
            return
        if "program" in order:
            self.served += 1
            self._spawn(number, order)
            return
        agent = self._agents.get(number)
        if agent is None:
            return  # it has ended, and that is being told
        if "write" in order:
            agent.orders += order["write"].encode()
            agent.write()
        elif "end" in order:
            agent.end()
        else:
            del agent.steps[:-1]
            agent.press()

    def _terminate(self, pid: int) -> None:
        if any(agent.pid == pid for agent in self._agents.values()):
            os.kill(pid, signal.SIGTERM)
        self._job.progress(terminated=pid)

    def _look_after(self, agent: _AgentProcess) -> None:
        """Pass on what it says and hears; press it where it is late; say so when it has ended."""
        pid, status = os.waitpid(agent.pid, os.WNOHANG)  # before its last words are read
        _write(agent.read())
        if agent.orders:
            agent.write()
        if pid:
            self._agents.pop(agent.number)
            agent.close()
            self._job.progress(ended=agent.number, **agent.ended(status))
        elif time.monotonic() >= agent.until:
            agent.late = True
            agent.press()

    def _fork(self, number: int, request: dict[str, Any], until: float) -> _AgentProcess:
        with suppress(Exception):  # the child says what is wrong; to have it imported saves each child time
            load_command(request)
        theirs, ours = _pipes()
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            self._become(request, parent, theirs, ours)
        for descriptor in theirs:
            os.close(descriptor)
        return _AgentProcess(number, pid, until, ours)

    def _spawn(self, number: int, order: dict[str, Any]) -> None:
        """Start a program; where there is none, say so as env(1) would."""
        argv, env = order["program"], {**os.environ, **order["env"]}
        until = time.monotonic() + order["deadline"]
        theirs, ours = _pipes()
        try:
            pid = os.posix_spawn(
                _found(argv[0], env), argv, env, setsid=True,
                file_actions=[(os.POSIX_SPAWN_DUP2, stream, at) for at, stream in enumerate(theirs)],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores
            )  # fmt: skip
        except OSError as error:
            for descriptor in ours:
                os.close(descriptor)
            status = _UNKNOWN if isinstance(error, FileNotFoundError) else _NO_PROGRAM
            self._job.progress(ended=number, status=status, stderr=f"env: {argv[0]}: {error.strerror}")
            return
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        stdin = base64.b64decode(order["stdin"])
        self._agents[number] = _ChildProgram(number, pid, until, ours, stdin, env.get(_MARK, ""))

    def _become(
        self, request: dict[str, Any], parent: int, streams: tuple[int, ...], parents: tuple[int, ...]
    ) -> None:
        """Be the agent: never returns."""
        status = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for stream in (*streams, *parents):
                os.close(stream)
            for agent in self._agents.values():
                agent.close()  # or their ends would not be seen as long as we live
            set_parent_death_signal(parent, signal.SIGTERM)
            status = run_request(request)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)


def _pipes() -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return what becomes stdin, stdout and stderr of a child, and our ends of these."""
    stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
    return (stdin[0], stdout[1], stderr[1]), (stdin[1], stdout[0], stderr[0])


def _found(program: str, env: dict[str, str]) -> str:
    """Return the path of a program, looked for as execvp(3) does."""
    if "/" in program:
        return program
    for place in os.get_exec_path(env):
        if os.access(f"{place}/{program}", os.X_OK) and os.path.isfile(f"{place}/{program}"):
            return f"{place}/{program}"
    return program


def _chunks(descriptor: int) -> Generator[bytes, None, bool]:
    """Yield what can be read now without waiting, up to a limit; return False at the end of the stream."""
    with suppress(BlockingIOError):
        for _ in range(_MOST_CHUNKS):
            if not (data := os.read(descriptor, _CHUNK)):
                return False
            yield data
    return True


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]
