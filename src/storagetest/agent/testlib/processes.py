"""Run parts of a case's body as another user or in another process, which ends with its case."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.testlib.outcomes import CannotRun, skip
from storagetest.agent.worker_pool import fork_worker

target_path = ""
"""The directory on the target in which the case has its own, set by the case's fixture."""


@contextmanager
def run_as_user(user: int, group: int, *others: int) -> Iterator[None]:
    """Set the real and effective user, ``group`` and supplementary groups ``others`` for the with-block.

    Skips the case if the process does not run as root, or if a directory above the target's is closed to
    the user.
    """
    if os.geteuid() != 0:
        skip("the cases do not run as root on this client, so they cannot run as another user")
    groups = os.getgroups()
    os.setgroups(list(others))
    os.setresgid(group, group, 0)
    os.setresuid(user, user, 0)
    try:
        closed = _closed_directory(target_path) if target_path else None
        if closed is not None:
            skip(
                f"other users cannot enter {closed}, which leads to the target's files: "
                "give its mode x for others, or the target another path"
            )
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


def _closed_directory(path: str) -> str | None:
    """Return the first directory above ``path`` that its mode closes to this process, or None.

    If the mode has x for others, a refusal is the file system's fault, which the case has to find.
    """
    for directory in reversed(Path(path).parents):
        if not os.access(directory, os.X_OK):
            return None if os.stat(directory).st_mode & stat.S_IXOTH else str(directory)
    return None


class KilledBySignal(Exception):
    """The other process was ended by the signal ``number``."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


class SubprocessCall:
    """A running call in another process, which ends with this one."""

    def __init__(self, call: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self.pid, commands, self._result_pipe = fork_worker(
            lambda _, pipe: _send_result(call, arguments, pipe)
        )
        os.close(commands)
        self._received = b""

    def ended(self, *, within: float = 0.0) -> bool:
        """Return whether the call has ended, or ends ``within`` seconds."""
        until = time.monotonic() + within
        while True:
            ready, _, _ = select.select([self._result_pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return False
            part = os.read(self._result_pipe, 1 << 16)
            self._received += part
            if not part:
                return True

    def is_blocked(self, operation: int, path: str | os.PathLike[str], *, within: float = 10.0) -> bool:
        """Wait until the call sleeps in fcntl() or flock() on a file of ``path``'s file system, or has ended.

        ``operation``: the second argument of the system call, such as F_SETLKW. A file system that is a
        process gets the requests in their order: it has this one when it has answered a later statvfs().
        Returns False if the call has ended, or if neither happens ``within`` seconds.
        """
        until = time.monotonic() + within
        while not self.ended() and time.monotonic() < until:
            if _sleeps_in(self.pid, operation):
                os.statvfs(path)
                return not self.ended()
            time.sleep(0.01)
        return False

    def result(self, *, within: float = 10.0) -> Any:  # noqa: ANN401  # what the call returned
        """Return the call's result (a JSON value), or raise the OSError that it raised.

        Raises :class:`KilledBySignal` if a signal ended the process, and AssertionError after ``within`` s.
        """
        if not self.ended(within=within):
            self.kill()
            raise AssertionError(f"the call in the other process did not end within {within:g} s")
        os.close(self._result_pipe)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            raise KilledBySignal(os.WTERMSIG(status))
        result = json.loads(self._received)
        if "errno" in result:
            raise OSError(result["errno"], os.strerror(result["errno"]))
        if "skipped" in result:
            raise CannotRun(result["skipped"])
        if "failed" in result:
            raise AssertionError(f"in the other process: {result['failed']}")
        if "bug" in result:
            raise RuntimeError(f"in the other process: {result['bug']}")
        return result["value"]

    def kill(self) -> None:
        """Kill the other process and wait for its end; its locks and descriptors end with it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._result_pipe)


def _sleeps_in(pid: int, operation: int) -> bool:
    """Whether a process sleeps in a system call whose second argument is ``operation`` (proc(5)).

    Where this cannot be seen (ptrace(2) forbidden), it is taken to sleep 0.3 s later.
    """
    try:
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            number_and_arguments = file.read().split()  # or "running"
    except OSError:
        time.sleep(0.3)
        return True
    return len(number_and_arguments) > 2 and int(number_and_arguments[2], 16) == operation


def call_in_subprocess(call: Callable[..., Any], *arguments: Any, within: float = 10.0) -> Any:  # noqa: ANN401
    """Make ``call`` in another process, whose locks and descriptors end with it; return its result."""
    return SubprocessCall(call, arguments).result(within=within)


def _send_result(call: Callable[..., Any], arguments: Sequence[Any], pipe: int) -> None:
    result: dict[str, Any]
    try:
        result = {"value": call(*arguments)}
    except OSError as error:
        result = {"errno": error.errno}
    except CannotRun as skipped:
        result = {"skipped": str(skipped)}
    except AssertionError as error:
        result = {"failed": str(error)}
    except Exception as error:  # raised in result()
        result = {"bug": f"{type(error).__name__}: {error}"}
    fsutil.write_all(pipe, json.dumps(result).encode())
