"""How a command is run so that it ends: on the host itself, whatever becomes of us.

Theory. Ending our end of a line (a pipe, a channel, a connection) does not end the command behind it. So
every command runs on its host under a supervisor of a few lines of ``sh`` and coreutils' ``timeout``: nothing
needs installing, and it costs one round trip. It sends TERM to the command's process group when the
deadline passes, KILL after :data:`GRACE` seconds, and then ends what left the group: fio's jobs, for one,
make sessions of their own. To find those, every run has a name of its own in its environment (:data:`MARK`),
which children inherit, and which can be read in ``/proc/*/environ`` by the user who runs them.

Rules:

1. The host's own clock is what normally ends a command. Ours runs out :data:`MARGIN` seconds later, when the
   supervisor or the whole host hangs; then we ask, on a line of its own, whether anything is left.
2. However the waiting ends early (deadline, Ctrl-C, an error in ``on_line``, too much output), what was
   started is ended on the host before the error goes up: no process with the run's mark is left, and none
   that would start one. If that cannot be proven, the error says that the command may still run.
3. What ran when a connection was lost is ended on the host by its deadline at the latest, and by us as soon
   as there is a connection again, before anything else runs there.
4. Output is bounded (:mod:`storagetest.hosts._output`).
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from storagetest.errors import DeadlineExceeded, HostError, NotInstalled
from storagetest.hosts._output import ConnectionLost, DeadlinePassed, ExitInfo, OutputBuffer, OutputTooLarge
from storagetest.hosts.base import Completed, Host, failed, format_command
from storagetest.hosts.fast_exec import MOST_STDIN, collect_output
from storagetest.hosts.interactive import Channel, ChannelLost, ChannelTimeout, InteractiveProcess

__all__ = ["SETTLE", "SupervisedHost", "Unreachable"]

MARK = "STORAGETEST_RUN"
GRACE = 2.0
"""Seconds between TERM and KILL."""
MARGIN = GRACE + 5.0
"""Seconds after the host's deadline at which ours passes."""
REAP_LIMIT = 15.0
"""Seconds that ending what is left of a run may take on the host."""
_REACH = 60.0
"""Seconds that reaching the host for a conversation may take."""
SETTLE = 1.0
"""Seconds without output after which a command that has ended is taken to have said all: something that it
left behind (a daemon) holds its stdout open."""

_TAIL_LINES = 8
_TIMED_OUT = {124, 137}  # timeout(1): the command timed out; it had to be killed
_SEEN_BY_ANOTHER_CLOCK = 0.95

# One line, so that it also survives a login shell that is no POSIX shell.
_MARKED = 'marked() { grep -lszxF "' + MARK + '=$run" /proc/[0-9]*/environ | cut -d/ -f3; }; '
_REAP = (
    # What is told to end may be starting more, so KILL is repeated; TERM is not: some take two for a KILL.
    "reap() { most=$1; shift; for signal; do tries=0; "
    'while pids=$(marked); [ -n "$pids" ]; do '
    "[ $signal = TERM ] && [ $tries -gt 0 ] || kill -$signal $pids 2>/dev/null; "
    "[ $tries -lt $most ] || break; tries=$((tries + 1)); sleep 0.1; "
    'done; done; [ -z "$pids" ]; }; '
)
_REAP_FROM_OUTSIDE = (
    # The supervisor, and `timeout` and `env` before the command starts, have the token in their command line.
    # This script reads it from stdin, and no process of this function has it in its own.
    "read -r run; "
    + _MARKED.replace("marked()", "started()")
    + "starting() { printf '%s\\n' $run | grep -lszF -f - /proc/[0-9]*/cmdline | cut -d/ -f3; }; "
    "marked() { started; starting; }; " + _REAP + "reap 40 TERM KILL"
)
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


class Unreachable(HostError):  # our errors are named for what happened
    """The host could not be reached, so nothing was started there."""


@dataclass(frozen=True, slots=True)
class _Task:
    """One run: what was asked for, and what it has said so far."""

    command: str
    deadline: float
    stdin: bytes
    out: OutputBuffer
    err: OutputBuffer
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def tail(self) -> str:
        said = self.err.text.strip() or self.out.text.strip()
        return "\n".join(said.splitlines()[-_TAIL_LINES:])


class SupervisedHost(Host):
    """A host whose transport can execute one argv; deadlines, files and messages are made from that here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._orphans: list[str] = []

    @abstractmethod
    def _execute(
        self, argv: Sequence[str], *, stdin: bytes, out: OutputBuffer, err: OutputBuffer, limit: float
    ) -> ExitInfo:
        """Execute ``argv`` (already supervised) to its end; our end is cut whenever this raises.

        Raises :class:`Overrun` after ``limit`` seconds, :class:`Lost`, :class:`Unreachable`, whatever ``out``
        raises, and :class:`TooMuch`.
        """

    @abstractmethod
    def _start(self, argv: Sequence[str], limit: float) -> Channel:
        """Start ``argv`` (already supervised) and return our end of its streams.

        Raises :class:`Lost` or :class:`Unreachable`; ``limit`` is for reaching the host.
        """

    def _session_slot(self, deadline: float) -> AbstractContextManager[None]:  # noqa: ARG002
        """Wait for one's turn, where a transport carries only so many commands at once."""
        return nullcontext()

    def _distrust_connection(self) -> None:
        """Called when the host did not answer: do not trust the present connection any more."""
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

        The command sees the C locale, PATH with the sbin directories, and ``env`` besides; ``env`` is part of
        a command line, so no place for secrets. ``deadline`` counts from the command's start; connecting,
        where that is needed, has a time-out of its own.
        """
        ended, task = self._run(argv, deadline=deadline, stdin=stdin, env=env, on_line=on_line)
        done = Completed(self.name, tuple(argv), ended.status, task.out.text, task.err.text, ended.seconds)
        if check and not done.ok:
            raise failed(done)
        return done

    @contextmanager
    def converse(
        self, argv: Sequence[str], *, deadline: float, first: bytes = b"", name: str = ""
    ) -> Iterator[InteractiveProcess]:
        """Converse with a command; see :meth:`Host.converse`. One of a connection's sessions is in use."""
        token, command = uuid.uuid4().hex, name or f"`{format_command(argv)}`"
        self._kill_orphans()
        with self._session_slot(_REACH):
            try:
                line = self._start(supervised(argv, token, deadline, {}), _REACH)
            except ConnectionLost as lost:
                self._orphans.append(token)
                raise HostError(f"{self.name}: {lost} while starting {command}") from None
            talk = InteractiveProcess(
                self.name,
                command,
                line,
                explain=lambda status, said: self._must_have_started(argv[0], status, said),
            )
            with closing(line):
                try:
                    talk.send_line(first)
                    yield talk
                except BaseException:
                    self._stop_interactive(line, token)
                    raise
                if not self._stop_interactive(line, token):
                    raise HostError(
                        f"{self.name}: {command} cannot be killed: it hangs in the kernel "
                        "(is its target dead?)"
                    )

    def _stop_interactive(self, line: Channel, token: str) -> bool:
        """End a conversation's command; whether it is gone, or will be as soon as there is a connection."""
        line.close_stdin()
        try:
            line.status(GRACE)
        except ChannelLost:
            self._orphans.append(token)
        except ChannelTimeout:
            return self._reap(token) is not False
        return True

    def push(self, data: bytes, path: str, *, mode: int = 0o600, deadline: float = 30.0) -> None:
        """Write a file; see :meth:`Host.push`. It is synced before it takes its name."""
        _must_be_absolute(path)
        part = f"{path}.{uuid.uuid4().hex[:8]}.part"
        script = ["sh", "-c", _PUSH, "push", path, f"{mode:o}", str(len(data)), part]
        ended, task = self._run(script, deadline=deadline, stdin=data)
        if ended.status:
            msg = f"{self.name}: cannot write {path}: {task.tail()}"
            raise HostError(msg)

    def pull(self, path: str, *, deadline: float = 30.0) -> bytes:
        """Read a file, as large as output may be; see :meth:`Host.pull`."""
        _must_be_absolute(path)
        ended, task = self._run(["cat", "--", path], deadline=deadline)
        if ended.status:
            msg = f"{self.name}: cannot read {path}: {task.tail()}"
            raise HostError(msg)
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
        if not argv:
            msg = f"{self.name}: there is no command to run"
            raise HostError(msg)
        task = _Task(format_command(argv), deadline, stdin, OutputBuffer(on_line), OutputBuffer())
        if deadline <= 0:
            msg = f"{self.name}: `{task.command}` was not started: its time is over"
            raise DeadlineExceeded(msg)
        self._kill_orphans()
        limit = deadline + MARGIN
        line = self._by_shortcut(argv, task, env or {})
        if line is not None:
            ended = self._run_watched(
                partial(collect_output, line, out=task.out, err=task.err, limit=limit), task
            )
        else:
            with self._session_slot(deadline):
                argv_there = supervised(argv, task.token, deadline, env or {})
                streams = {"out": task.out, "err": task.err}
                ended = self._run_watched(
                    partial(self._execute, argv_there, stdin=task.stdin, limit=limit, **streams), task
                )
        if ended.status in _TIMED_OUT and ended.seconds >= deadline * _SEEN_BY_ANOTHER_CLOCK:
            # The supervisor gives up after some tries; a fork server knows the process group alone.
            raise self._late(task, self._killed(task.token))
        self._must_have_started(argv[0], ended.status, task.err.text)
        return ended, task

    def _by_shortcut(self, argv: Sequence[str], task: _Task, env: Mapping[str, str]) -> Channel | None:
        """Start a task by the shortcut, where there is one that can be asked."""
        if self.shortcut is None or len(task.stdin) > MOST_STDIN:
            return None
        whole = {**env, MARK: task.token}
        return self.shortcut.start(argv, env=whole, stdin=task.stdin, deadline=task.deadline)

    def _run_watched(self, execute: Callable[[], ExitInfo], task: _Task) -> ExitInfo:
        """Have a task executed, and end it on the host whenever the waiting for it ends early (rule 2)."""
        try:
            ended = execute()
            task.out.finish()
        except DeadlinePassed:
            raise self._late(task, self._killed(task.token)) from None
        except ConnectionLost as lost:
            self._orphans.append(task.token)
            raise HostError(
                f"{self.name}: {lost} while running `{task.command}`, which may still run there. The next "
                "command connects anew, and ends it first"
            ) from None
        except OutputTooLarge as much:
            how = self._killed(task.token)
            raise HostError(f"{self.name}: `{task.command}` printed {much} {how}") from None
        except Unreachable:
            raise
        except BaseException:
            self._reap(task.token)
            raise
        return ended

    def _killed(self, token: str) -> str:
        """End what is left of a run, and return the words of a message for what became of it."""
        return {
            True: "and was killed",
            False: "and cannot be killed: it still runs, and hangs in the kernel (is its target dead?)",
            None: "and may still run: the host no longer answers",
        }[self._reap(token)]

    def _reap(self, token: str) -> bool | None:
        """End what is left of a run: whether all of it is gone, or None where the host does not answer."""
        line = ["sh", "-c", _REAP_FROM_OUTSIDE]
        stdin = f"{token}\n".encode()
        try:
            ended = self._execute(line, stdin=stdin, out=OutputBuffer(), err=OutputBuffer(), limit=REAP_LIMIT)
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
        """Raise where env(1) could not execute the command: status 127 or 126, and its word for it."""
        words = [line for line in err.splitlines() if line.startswith("env: ")]  # a launcher may add its own
        if status not in {126, 127} or not words or command not in words[-1]:
            return
        if status == 127:
            where = "(not on PATH, /usr/sbin and /sbin included)"
            raise NotInstalled(f"{self.name}: `{command}` is not installed {where}")
        raise HostError(f"{self.name}: `{command}` cannot be executed (permission denied)")

    def _late(self, task: _Task, how: str) -> DeadlineExceeded:
        said = f"; it said:\n{tail}" if (tail := task.tail()) else ""
        return DeadlineExceeded(
            f"{self.name}: `{task.command}` did not end within {task.deadline:g} s {how}{said}"
        )


def supervised(argv: Sequence[str], token: str, deadline: float, env: Mapping[str, str]) -> list[str]:
    """Return the argv that runs ``argv`` under the supervisor."""
    settings = [f"{name}={value}" for name, value in env.items()]
    script = ["sh", "-c", _MARKED + _REAP + _SUPERVISE, "storagetest", token, f"{GRACE:g}", f"{deadline:.3f}"]
    return [*script, *settings, *argv]


def _must_be_absolute(path: str) -> None:
    if not path.startswith("/"):
        msg = f"path must be absolute, not {path!r}"
        raise HostError(msg)
