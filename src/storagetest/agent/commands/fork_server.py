"""Fork server: one agent process per client that forks all other agents and starts programs.

Theory. Starting an agent is expensive on a slow client: SSH channel, login shell, supervisor, interpreter and
imports take two seconds on an emulated client. The fork server does that once; then an agent costs one fork.
All its agents and programs share its stdin and stdout.

The request has only a deadline, for the whole process. Then each line of stdin is a JSON object:

- ``n``, ``agent`` (the request of any other command), ``deadline`` (s): start an agent, number ``n``;
- ``n``, ``program`` (an argv), ``env`` (additional variables), ``stdin`` (all of it, in base64), ``deadline``
  (s): start a program, number ``n``, in its own session. With ``counters`` and ``files`` it is measured: see
  :class:`~storagetest.agent.program_surroundings.ProgramSurroundings`;
- ``n``, ``write``: a text for its stdin;
- ``n``, ``end``: close its stdin. If the agent does not end within :data:`_EOF_TIMEOUT` seconds it gets
  SIGTERM, and :data:`_GRACE` seconds later SIGKILL. The same happens at its deadline, which is extended while
  it removes its files (:data:`~storagetest.agent.command_context.CLEANUP_MESSAGE`);
- ``n``, ``kill``: SIGKILL now;
- ``term``: SIGTERM to the agent with this process id; a progress message confirms it (``terminated``,
  the id);
- ``shutdown``: end the fork server.

An agent's output is forwarded line by line, each line after its number and a space. A program's output is
bytes: after its number and a space there is ``o`` or ``e`` (stdout, stderr), a space, and base64. When either
has ended there is a progress message: ``ended``, its number, with ``status`` (128 + the signal's number, if a
signal ended it; 124 if a program passed its deadline; 127 or 126 if a program cannot be started),
``stderr`` (the end of an agent's stderr) and, of a measured program, ``readings``. The fork server also ends
at the end of stdin, and all agents and programs with it.
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
from contextlib import nullcontext, suppress
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CLEANUP_LIMIT, CLEANUP_MESSAGE, CLEANUP_STALL, CommandContext
from storagetest.agent.dispatch import load_command, run_request
from storagetest.agent.process_markers import kill_marked
from storagetest.agent.program_surroundings import ProgramSurroundings
from storagetest.agent.worker_pool import load_prctl, set_parent_death_signal

_EOF_TIMEOUT = 0.5
"""Seconds between the end of an agent's stdin and SIGTERM (chosen)."""
_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL (chosen)."""
_SHUTDOWN = 1.5
"""Seconds in which all agents end when the fork server ends; after two seconds the supervisor kills it."""
_CHUNK = 1 << 16
_MOST_CHUNKS = 16
"""More than a pipe holds, so that one call reads all remaining output of an ended process."""
_MOST_STDERR = 1 << 14
_NEVER = float("inf")
_CLEANUP = CLEANUP_MESSAGE.encode()
_MARK = "STORAGETEST_RUN"
"""Environment variable of the supervisor; agents and their children inherit it, programs have own values."""
_LATE = 124  # timeout(1)
_UNKNOWN, _NO_PROGRAM = 127, 126  # env(1)


def run(_request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Serve until stdin ends."""
    server = _ForkServer(context)
    load_prctl()  # once, instead of in each child
    context.progress(phase="ready")
    try:
        while server.serve_once():
            pass
    finally:
        server.shut_down()
    return {"served": server.served}


class _AgentProcess:
    """One agent, as seen by its parent."""

    def __init__(self, number: int, pid: int, until: float, streams: tuple[int, int, int]) -> None:
        self.number, self.pid = number, pid
        self.stdin, self.stdout, self.stderr = streams
        self.until, self.signals = until, [signal.SIGTERM, signal.SIGKILL]
        self.max_until = until + CLEANUP_LIMIT
        self.readable = {self.stdout, self.stderr}
        """The streams that have not ended: poll(2) would report ended ones continuously (POLLHUP)."""
        self.input, self.output, self.error_output = bytearray(), bytearray(), b""
        self.ending = self.late = False
        for stream in streams:
            os.set_blocking(stream, False)

    def write(self) -> None:
        """Write pending input without blocking; close stdin if there will be no more input."""
        try:
            while self.input:
                del self.input[: os.write(self.stdin, self.input)]
        except BlockingIOError:
            return
        except OSError:  # it has closed its stdin
            self.input.clear()
        if self.ending:
            self.close_stdin()

    def read(self) -> bytes:
        """Return the complete new lines of its stdout, each after its number."""
        for data in self.chunks(self.stderr):
            self.error_output = (self.error_output + data)[-_MOST_STDERR:]
        for data in self.chunks(self.stdout):
            self.output += data
        end = self.output.rfind(b"\n") + 1
        lines = bytes(self.output[:end])
        del self.output[:end]
        if lines.startswith(_CLEANUP) or b"\n" + _CLEANUP in lines:
            self.extend_for_cleanup()
        return b"".join(b"%d %b" % (self.number, line) for line in lines.splitlines(keepends=True))

    def extend_for_cleanup(self) -> None:
        """Extend the deadline of an agent that removes its files, unless it has been ended."""
        if len(self.signals) > 1 and not self.ending:
            self.until = max(self.until, min(self.max_until, time.monotonic() + CLEANUP_STALL + _GRACE))

    def chunks(self, stream: int) -> Iterator[bytes]:
        """Yield the available data of stdout or stderr without blocking, up to a limit."""
        if stream in self.readable and not (yield from _chunks(stream)):
            self.readable.discard(stream)

    def ended(self, status: int) -> dict[str, Any]:
        """Return exit status and stderr; ``status`` is that of waitpid(2)."""
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        return {"status": code, "stderr": self.error_output.decode("utf-8", "replace")}

    def end(self) -> None:
        """Close its stdin after the pending input; SIGTERM follows after :data:`_EOF_TIMEOUT`."""
        if not self.ending:
            self.ending = True
            self.until = min(self.until, time.monotonic() + _EOF_TIMEOUT)
            self.write()

    def signal_next(self) -> None:
        """Send the next signal, SIGTERM and then SIGKILL, to its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, self.signals[0])
        self.until = time.monotonic() + _GRACE if len(self.signals) > 1 else _NEVER
        del self.signals[:-1]

    def close_stdin(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def close(self) -> None:
        self.close_stdin()
        os.close(self.stdout)
        os.close(self.stderr)


class _ChildProgram(_AgentProcess):
    """A program: it gets its whole input at the start; its output is bytes. ``mark`` marks its processes.

    ``surroundings`` are those of a measured program.
    """

    def __init__(
        self,
        number: int,
        pid: int,
        until: float,
        streams: tuple[int, int, int],
        *,
        stdin: bytes,
        mark: str,
        surroundings: ProgramSurroundings | None,
    ) -> None:
        super().__init__(number, pid, until, streams)
        self.mark, self._surroundings = mark, surroundings
        self.input += stdin
        self.ending = True
        self.write()

    def read(self) -> bytes:
        """Return its new output in chunks."""
        streams = ((b"o", self.stdout), (b"e", self.stderr))
        output = [(kind, base64.b64encode(data)) for kind, stream in streams for data in self.chunks(stream)]
        return b"".join(b"%d %b %b\n" % (self.number, *chunk) for chunk in output)

    def ended(self, status: int) -> dict[str, Any]:
        """See :meth:`_AgentProcess.ended`; the status is that of timeout(1) if it passed its deadline."""
        end = {**super().ended(status), **({"status": _LATE} if self.late else {})}
        return end if self._surroundings is None else {**end, "readings": self._surroundings.readings()}

    def close(self) -> None:
        super().close()
        if self._surroundings is not None:
            self._surroundings.remove()


class _ForkServer:
    """Reads requests, starts agents and programs, and forwards their input and output."""

    def __init__(self, context: CommandContext) -> None:
        self.served = 0
        self._context = context
        self._agents: dict[int, _AgentProcess] = {}
        self._rest = b""
        self._wake, wakeup_fd = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wakeup_fd, False)
        signal.set_wakeup_fd(wakeup_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # the byte in the pipe is enough

    def serve_once(self) -> bool:
        """Wait for events and handle them; return whether to continue."""
        ready = self._wait(stdin=True)
        for agent in list(self._agents.values()):
            self._update(agent)
        return time.monotonic() < self._context.until and (0 not in ready or self._read_requests())

    def shut_down(self) -> None:
        """End all agents and programs."""
        last = time.monotonic() + _SHUTDOWN
        marks = [agent.mark for agent in self._agents.values() if isinstance(agent, _ChildProgram)]
        for agent in self._agents.values():
            agent.close_stdin()
            agent.signal_next()
            agent.until = last
        while self._agents:
            self._wait(stdin=False)
            for agent in list(self._agents.values()):
                with suppress(OSError):  # stdout may be closed
                    self._update(agent)
                # Killed: one that hangs in the kernel is left to the supervisor.
                if agent.until == _NEVER and self._agents.pop(agent.number, None) is not None:
                    agent.close()
        # Killed processes may have left children.
        for mark in [*marks, *([os.environ[_MARK]] if _MARK in os.environ else [])]:
            kill_marked(_MARK, mark)

    def _wait(self, *, stdin: bool) -> set[int]:
        """Wait for an event or the next deadline; return the ready descriptors."""
        waits = select.poll()
        for descriptor in (self._wake, *((0,) if stdin else ())):
            waits.register(descriptor, select.POLLIN)
        for agent in self._agents.values():
            for stream in agent.readable:
                waits.register(stream, select.POLLIN)
            if agent.input:
                waits.register(agent.stdin, select.POLLOUT)
        next_step = min([self._context.until, *(agent.until for agent in self._agents.values())])
        events = waits.poll(max(0.0, next_step - time.monotonic()) * 1000 + 1)
        for _ in _chunks(self._wake):
            pass
        return {descriptor for descriptor, _ in events}

    def _read_requests(self) -> bool:
        """Read and run requests; return False at the end of stdin and after ``close``."""
        data = os.read(0, _CHUNK)
        if not data:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        requests = [json.loads(line) for line in lines]
        for request in requests:
            if "term" in request:
                self._terminate(request["term"])
            elif "shutdown" not in request:
                self._run_request(request)
        return not any("shutdown" in request for request in requests)

    def _run_request(self, request: dict[str, Any]) -> None:
        number = request["n"]
        if "agent" in request:
            self.served += 1
            self._agents[number] = self._fork(
                number, request["agent"], time.monotonic() + request["deadline"]
            )
            return
        if "program" in request:
            self.served += 1
            self._spawn(number, request)
            return
        agent = self._agents.get(number)
        if agent is None:
            return  # it has ended, and the progress message is on its way
        if "write" in request:
            agent.input += request["write"].encode()
            agent.write()
        elif "end" in request:
            agent.end()
        else:
            del agent.signals[:-1]
            agent.signal_next()

    def _terminate(self, pid: int) -> None:
        if any(agent.pid == pid for agent in self._agents.values()):
            os.kill(pid, signal.SIGTERM)
        self._context.progress(terminated=pid)

    def _update(self, agent: _AgentProcess) -> None:
        """Forward its input and output; signal it if it is late; report its end."""
        pid, status = os.waitpid(agent.pid, os.WNOHANG)  # before its last output is read
        if output := agent.read():
            fsutil.write_all(1, output)
        if agent.input:
            agent.write()
        if pid:
            self._agents.pop(agent.number)
            ended = agent.ended(status)
            agent.close()
            self._context.progress(ended=agent.number, **ended)
        elif time.monotonic() >= agent.until:
            agent.late = True
            agent.signal_next()

    def _fork(self, number: int, request: dict[str, Any], until: float) -> _AgentProcess:
        with suppress(Exception):  # imported here once for all children; the child reports an error
            load_command(request)
        child_ends, parent_ends = _pipes()
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            self._run_agent(request, parent, child_ends, parent_ends)
        for descriptor in child_ends:
            os.close(descriptor)
        return _AgentProcess(number, pid, until, parent_ends)

    def _spawn(self, number: int, request: dict[str, Any]) -> None:
        """Start a program; if it cannot be started, report the status and message of env(1)."""
        argv, env = request["program"], {**os.environ, **request["env"]}
        until = time.monotonic() + request["deadline"]
        child_ends, parent_ends = _pipes()
        streams = [(os.POSIX_SPAWN_DUP2, end, stream) for stream, end in enumerate(child_ends)]
        measured = None
        try:
            if "counters" in request:
                measured = ProgramSurroundings(request["counters"], request["files"])
            with measured.as_working_directory() if measured else nullcontext():
                pid = os.posix_spawn(
                    _find_program(argv[0], env), argv, env, setsid=True, file_actions=streams,
                    setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # ignored by Python
                )  # fmt: skip
        except OSError as error:
            for descriptor in parent_ends:
                os.close(descriptor)
            if measured is not None:
                measured.remove()
            status = _UNKNOWN if isinstance(error, FileNotFoundError) else _NO_PROGRAM
            self._context.progress(ended=number, status=status, stderr=f"env: {argv[0]}: {error.strerror}")
            return
        finally:
            for descriptor in child_ends:
                os.close(descriptor)
        stdin = base64.b64decode(request["stdin"])
        self._agents[number] = _ChildProgram(
            number, pid, until, parent_ends, stdin=stdin, mark=env.get(_MARK, ""), surroundings=measured
        )

    def _run_agent(
        self, request: dict[str, Any], parent: int, streams: tuple[int, ...], parents: tuple[int, ...]
    ) -> None:
        """Run the agent in the child process; never returns."""
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
                agent.close()  # else their pipes would stay open as long as this agent runs
            set_parent_death_signal(parent, signal.SIGTERM)
            status = run_request(request)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)


def _pipes() -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return stdin, stdout and stderr of a child, and the parent's ends of these."""
    stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
    return (stdin[0], stdout[1], stderr[1]), (stdin[1], stdout[0], stderr[0])


def _find_program(program: str, env: dict[str, str]) -> str:
    """Return the path of a program, found as by execvp(3), or ``program`` itself."""
    if "/" in program:
        return program
    for directory in os.get_exec_path(env):
        if os.access(f"{directory}/{program}", os.X_OK) and os.path.isfile(f"{directory}/{program}"):
            return f"{directory}/{program}"
    return program


def _chunks(descriptor: int) -> Generator[bytes, None, bool]:
    """Yield the available data without blocking, up to a limit; return False at the end of the stream."""
    with suppress(BlockingIOError):
        for _ in range(_MOST_CHUNKS):
            if not (data := os.read(descriptor, _CHUNK)):
                return False
            yield data
    return True
