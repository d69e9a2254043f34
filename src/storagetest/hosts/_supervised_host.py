"""Run commands under a supervisor on the host, which kills them at their deadline.

Theory. Closing the controller's end (a pipe, a channel, a connection) does not end the command. So every
command runs on its host under a supervisor of a few lines of ``sh`` and coreutils' ``timeout``: nothing has
to be installed, and it costs one round trip. The supervisor sends TERM to the command's process group at the
deadline, KILL after :data:`GRACE` seconds, and then kills processes that left the group (fio's jobs, for
example, make their own sessions). To find them, every run has a unique mark in its environment, which
children inherit and their user can read in ``/proc/*/environ`` (:mod:`storagetest.hosts._run_mark`).

Rules:

1. Normally the host's clock ends a command. The controller's deadline is :data:`MARGIN` seconds later, for a
   supervisor or host that hangs; then the controller kills the remaining processes through a new channel.
2. If the waiting ends early (deadline, Ctrl-C, an error in ``on_line``, too much output), the run is killed
   on the host before the error is raised: no process with the run's mark is left, and none that would start
   one. If that cannot be verified, the error states that the command may still run.
3. A command that ran when the connection was lost is killed by its deadline on the host, and by the
   controller after it has reconnected, before anything else runs there.
4. Output is limited (:mod:`storagetest.hosts._output`).
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from storagetest.errors import DeadlineExceeded, HostError, NotInstalled
from storagetest.hosts._output import (
    ConnectionLost,
    DeadlinePassed,
    ExitInfo,
    OutputBuffer,
    OutputTooLarge,
    last_lines,
)
from storagetest.hosts._run_mark import MARK, MARKED, REAP, REAP_FROM_OUTSIDE, new_token
from storagetest.hosts.base import Completed, Host, failed, format_command
from storagetest.hosts.fast_exec import MAX_STDIN, Readings, Surroundings, collect_output
from storagetest.hosts.interactive import Channel, ChannelLost, ChannelTimeout, InteractiveProcess

GRACE = 2.0
"""Seconds between TERM and KILL."""
MARGIN = GRACE + 5.0
"""Seconds between the deadline on the host and the controller's deadline."""
REAP_LIMIT = 15.0
"""Timeout for killing a run's remaining processes on the host, in seconds (chosen)."""
_CONNECT_TIMEOUT = 60.0
"""Timeout for connecting to the host for an interactive process, in seconds (chosen)."""

_TIMED_OUT = {124, 137}  # timeout(1): the command timed out; it had to be killed
_CLOCK_TOLERANCE = 0.95

# One line, so that it also works in a login shell that is not a POSIX shell.
_SUPERVISE = (
    "run=$1 grace=$2 deadline=$3; shift 3; "
    "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; LC_ALL=C; export PATH LC_ALL; "
    'timeout -k "$grace" "$deadline" env "' + MARK + '=$run" "$@"; status=$?; '
    "case $status in 124) reap 10 TERM KILL;; 137) reap 10 KILL;; esac; exit $status"
)
_PUSH = (
    'path=$1 mode=$2 size=$3 part=$4; set -e; mkdir -p "${path%/*}/"; trap \'rm -f "$part"\' EXIT; '
    'umask 077; cat >"$part"; '
    '[ "$(wc -c <"$part")" -eq "$size" ] || { echo "only a part of the data arrived" >&2; exit 1; }; '
    'chmod "$mode" "$part"; sync "$part"; mv -fT "$part" "$path"'
)


class Unreachable(HostError):  # named for what happened
    """The connection to the host failed, so nothing was started there."""


@dataclass(frozen=True, slots=True)
class _Task:
    """One run: its command line and input, and its output so far."""

    command: str
    deadline: float
    stdin: bytes
    out: OutputBuffer
    err: OutputBuffer
    token: str = field(default_factory=lambda: new_token())  # noqa: PLW0108  # looked up when it is called

    def tail(self) -> str:
        return last_lines(self.err.text, self.out.text)


class SupervisedHost(Host):
    """A host whose transport can execute one argv; this class adds deadlines, files and error messages."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._orphans: list[str] = []

    def _execute(
        self, argv: Sequence[str], *, stdin: bytes, out: OutputBuffer, err: OutputBuffer, limit: float
    ) -> ExitInfo:
        """Execute ``argv`` (already supervised) to its end; the channel is closed if this raises.

        Raises :class:`DeadlinePassed` after ``limit`` seconds, :class:`ConnectionLost`, :class:`Unreachable`,
        any exception of ``out``, and :class:`OutputTooLarge`.
        """
        return collect_output(self._start(argv, limit), stdin=stdin, out=out, err=err, limit=limit)

    @abstractmethod
    def _start(self, argv: Sequence[str], limit: float) -> Channel:
        """Start ``argv`` (already supervised) and return the channel to it.

        Raises :class:`ConnectionLost`, :class:`DeadlinePassed` or :class:`Unreachable`; ``limit`` is the
        timeout for connecting.
        """

    def _session_slot(self, deadline: float) -> AbstractContextManager[None]:  # noqa: ARG002
        """Wait for a free session, if the transport has a limited number of them."""
        return nullcontext()

    def _distrust_connection(self) -> None:
        """Do not use the present connection for new commands, because the host did not respond."""
        if self.shortcut is not None:
            self.shortcut.is_silent()

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
        """Run ``argv``; see :meth:`Host.run`.

        The command has the C locale, PATH with the sbin directories, and ``env``; ``env`` is part of a
        command line and must not contain secrets. ``deadline`` counts from the command's start; connecting
        has its own timeout.
        """
        ended, task = self._run(argv, deadline=deadline, stdin=stdin, env=env, on_line=on_line)
        done = self._completed(argv, ended, task)
        if check and not done.ok:
            raise failed(done)
        return done

    def run_measured(
        self, argv: Sequence[str], *, deadline: float, surroundings: Surroundings
    ) -> tuple[Completed, Readings] | None:
        """Run ``argv`` by :attr:`Host.shortcut`; see :meth:`Host.run_measured`."""
        task = self._task(argv, deadline)
        self._kill_orphans()
        if self.shortcut is None:
            return None
        channel = self.shortcut.start_measured(
            argv, env={MARK: task.token}, deadline=deadline, surroundings=surroundings
        )
        if channel is None:
            return None
        ended = self._collect(argv, task, channel)
        readings = channel.readings()
        if readings is None:
            raise HostError(f"{self.name}: `{task.command}` ended without its counters")
        return self._completed(argv, ended, task), readings

    @contextmanager
    def interactive_exec(
        self, argv: Sequence[str], *, deadline: float, first: bytes = b"", name: str = ""
    ) -> Iterator[InteractiveProcess]:
        """Start a process, as :meth:`Host.interactive_exec` describes; uses one session of the connection."""
        token, command = new_token(), name or f"`{format_command(argv)}`"
        self._kill_orphans()
        with self._session_slot(_CONNECT_TIMEOUT):
            try:
                channel = self._start(supervised(argv, token, deadline, {}), _CONNECT_TIMEOUT)
            except (ConnectionLost, DeadlinePassed) as lost:
                self._orphans.append(token)
                raise HostError(f"{self.name}: {lost} while starting {command}") from None
            process = InteractiveProcess(
                self.name,
                command,
                channel,
                explain=lambda status, stderr: self._must_have_started(argv[0], status, stderr),
            )
            with closing(channel):
                try:
                    process.send_line(first)
                    yield process
                except BaseException:
                    self._stop_interactive(channel, token)
                    raise
                if not self._stop_interactive(channel, token):
                    raise HostError(
                        f"{self.name}: {command} cannot be killed: it hangs in the kernel "
                        "(is its target dead?)"
                    )

    def _stop_interactive(self, channel: Channel, token: str) -> bool:
        """End an interactive process. False if it cannot be killed; True also if it is killed later."""
        channel.close_stdin()
        try:
            channel.status(GRACE)
        except ChannelLost:
            self._orphans.append(token)
        except (ChannelTimeout, OutputTooLarge):
            return self._reap(token) is not False
        return True

    def push(self, data: bytes, path: str, *, mode: int = 0o600, deadline: float = 30.0) -> None:
        """Write a file; see :meth:`Host.push`. It is synced before it is renamed."""
        _must_be_absolute(path)
        part = f"{path}.{uuid.uuid4().hex[:8]}.part"
        script = ["sh", "-c", _PUSH, "push", path, f"{mode:o}", str(len(data)), part]
        ended, task = self._run(script, deadline=deadline, stdin=data)
        if ended.status:
            raise HostError(f"{self.name}: cannot write {path}: {task.tail()}")

    def pull(self, path: str, *, deadline: float = 30.0) -> bytes:
        """Read a file of at most the output limit; see :meth:`Host.pull`."""
        _must_be_absolute(path)
        ended, task = self._run(["cat", "--", path], deadline=deadline)
        if ended.status:
            raise HostError(f"{self.name}: cannot read {path}: {task.tail()}")
        return task.out.data

    def _run(
        self,
        argv: Sequence[str],
        *,
        deadline: float,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> tuple[ExitInfo, _Task]:
        task = self._task(argv, deadline, stdin, on_line)
        self._kill_orphans()
        channel = self._start_fast(argv, task, env or {})
        if channel is not None:
            return self._collect(argv, task, channel), task
        with self._session_slot(deadline):
            supervised_argv = supervised(argv, task.token, deadline, env or {})
            streams = {"out": task.out, "err": task.err}
            limit = deadline + MARGIN
            ended = self._run_watched(
                partial(self._execute, supervised_argv, stdin=task.stdin, limit=limit, **streams), task
            )
        self._check_end(argv, ended, task)
        return ended, task

    def _task(
        self,
        argv: Sequence[str],
        deadline: float,
        stdin: bytes = b"",
        on_line: Callable[[str], None] | None = None,
    ) -> _Task:
        if not argv:
            raise HostError(f"{self.name}: the command is empty")
        task = _Task(format_command(argv), deadline, stdin, OutputBuffer(on_line), OutputBuffer())
        if deadline <= 0:
            raise DeadlineExceeded(f"{self.name}: `{task.command}` was not started: its deadline is over")
        return task

    def _collect(self, argv: Sequence[str], task: _Task, channel: Channel) -> ExitInfo:
        """Wait for a command that :attr:`Host.shortcut` has started."""
        limit = task.deadline + MARGIN
        ended = self._run_watched(
            partial(collect_output, channel, out=task.out, err=task.err, limit=limit), task
        )
        self._check_end(argv, ended, task)
        return ended

    def _check_end(self, argv: Sequence[str], ended: ExitInfo, task: _Task) -> None:
        """Raise if the command passed its deadline or could not be started."""
        if ended.status in _TIMED_OUT and ended.seconds >= task.deadline * _CLOCK_TOLERANCE:
            # The supervisor stops after some tries, and a fork server kills only the process group.
            raise self._late(task, self._killed(task.token))
        self._must_have_started(argv[0], ended.status, task.err.text)

    def _completed(self, argv: Sequence[str], ended: ExitInfo, task: _Task) -> Completed:
        return Completed(self.name, tuple(argv), ended.status, task.out.text, task.err.text, ended.seconds)

    def _start_fast(self, argv: Sequence[str], task: _Task, env: Mapping[str, str]) -> Channel | None:
        """Start a task by :attr:`Host.shortcut`; None if there is none or its stdin is too large."""
        if self.shortcut is None or len(task.stdin) > MAX_STDIN:
            return None
        marked_env = {**env, MARK: task.token}
        return self.shortcut.start(argv, env=marked_env, stdin=task.stdin, deadline=task.deadline)

    def _run_watched(self, execute: Callable[[], ExitInfo], task: _Task) -> ExitInfo:
        """Execute a task, and kill it on the host if the waiting ends early (rule 2)."""
        try:
            ended = execute()
            task.out.finish()
        except DeadlinePassed:
            raise self._late(task, self._killed(task.token)) from None
        except ConnectionLost as lost:
            self._orphans.append(task.token)
            raise HostError(
                f"{self.name}: {lost} while running `{task.command}`, which may still run there. The next "
                "command reconnects and ends it first"
            ) from None
        except OutputTooLarge as much:
            outcome = self._killed(task.token)
            raise HostError(f"{self.name}: `{task.command}` printed {much} {outcome}") from None
        except Unreachable:
            raise
        except BaseException:
            self._reap(task.token)
            raise
        return ended

    def _killed(self, token: str) -> str:
        """Kill a run's remaining processes, and return the outcome as part of an error message."""
        return {
            True: "and was killed",
            False: "and cannot be killed: it still runs, and hangs in the kernel (is its target dead?)",
            None: "and may still run: the host no longer answers",
        }[self._reap(token)]

    def _reap(self, token: str) -> bool | None:
        """Kill a run's remaining processes; return whether all ended. None: the host does not respond."""
        argv = ["sh", "-c", REAP_FROM_OUTSIDE]
        stdin = f"{token}\n".encode()
        try:
            ended = self._execute(argv, stdin=stdin, out=OutputBuffer(), err=OutputBuffer(), limit=REAP_LIMIT)
        except (DeadlinePassed, ConnectionLost, HostError):
            self._distrust_connection()
            self._orphans.append(token)
            return None
        return ended.status == 0

    def _kill_orphans(self) -> None:
        tokens, self._orphans = self._orphans, []
        while tokens and self._reap(tokens.pop()) is not None:
            pass
        self._orphans += tokens

    def _must_have_started(self, command: str, status: int, err: str) -> None:
        """Raise if env(1) could not execute the command: status 127 or 126, and its line on stderr."""
        lines = [line for line in err.splitlines() if line.startswith("env: ")]  # a launcher may add its own
        if status not in {126, 127} or not lines or command not in lines[-1]:
            return
        if status == 127:
            where = "(not on PATH, /usr/sbin and /sbin included)"
            raise NotInstalled(f"{self.name}: `{command}` is not installed {where}")
        raise HostError(f"{self.name}: `{command}` cannot be executed (permission denied)")

    def _late(self, task: _Task, outcome: str) -> DeadlineExceeded:
        output = f"; its output:\n{tail}" if (tail := task.tail()) else ""
        return DeadlineExceeded(
            f"{self.name}: `{task.command}` did not end within {task.deadline:g} s {outcome}{output}"
        )


def supervised(argv: Sequence[str], token: str, deadline: float, env: Mapping[str, str]) -> list[str]:
    """Return the command line that runs ``argv`` under the supervisor."""
    settings = [f"{name}={value}" for name, value in env.items()]
    script = ["sh", "-c", MARKED + REAP + _SUPERVISE, "storagetest", token, f"{GRACE:g}", f"{deadline:.3f}"]
    return [*script, *settings, *argv]


def _must_be_absolute(path: str) -> None:
    if not path.startswith("/"):
        raise HostError(f"path must be absolute, not {path!r}")
