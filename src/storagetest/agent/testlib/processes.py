"""Other users and other processes, as a body needs them; what is started here ends with its case."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from storagetest.agent.testlib.outcomes import CannotRun, skip
from storagetest.agent.worker_pool import init_worker

__all__ = ["KilledBySignal", "SubprocessCall", "call_in_subprocess", "run_as_user"]


@contextmanager
def run_as_user(user: int, group: int, *others: int) -> Iterator[None]:
    """Be another user, of ``group`` and the ``others``, real and effective, for as long as the body lasts.

    Needs a process that may: root's. Otherwise the case cannot be tried.
    """
    if os.geteuid() != 0:
        skip("the cases do not run as root on this client, so that another user cannot be tried")
    had = os.getgroups()
    os.setgroups(list(others))
    os.setresgid(group, group, 0)
    os.setresuid(user, user, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(had)


class KilledBySignal(Exception):
    """The other process was ended by a signal: ``number``."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


class SubprocessCall:
    """A call that is under way in another process; it dies with this one."""

    def __init__(self, call: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self._answers, answer = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                init_worker(parent)
                _answer_for(call, arguments, answer)
            finally:
                os._exit(0)
        os.close(answer)
        self._said = b""

    def ended(self, *, within: float = 0.0) -> bool:
        """Whether the call has ended, or does within so many seconds."""
        until = time.monotonic() + within
        while True:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return False
            part = os.read(self._answers, 1 << 16)
            self._said += part
            if not part:
                return True

    def result(self, *, within: float = 10.0) -> Any:  # noqa: ANN401  # what the call returned
        """Return what the call returned (as JSON has it), or raise the OSError that it raised.

        :class:`Signalled` where a signal ended the process; AssertionError where it takes longer.
        """
        if not self.ended(within=within):
            self.kill()
            raise AssertionError(f"the call in the other process did not end within {within:g} s")
        os.close(self._answers)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            raise KilledBySignal(os.WTERMSIG(status))
        said = json.loads(self._said)
        if "errno" in said:
            raise OSError(said["errno"], os.strerror(said["errno"]))
        if "lacks" in said:
            raise CannotRun(said["lacks"])
        if "failed" in said:
            raise AssertionError(f"in the other process: {said['failed']}")
        if "bug" in said:
            raise RuntimeError(f"in the other process: {said['bug']}")
        return said["value"]

    def kill(self) -> None:
        """End the other process with all that it holds, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._answers)


def call_in_subprocess(call: Callable[..., Any], *arguments: Any, within: float = 10.0) -> Any:  # noqa: ANN401
    """Make ``call`` in another process, whose locks and descriptors end with it; return its result."""
    return SubprocessCall(call, arguments).result(within=within)


def _answer_for(call: Callable[..., Any], arguments: Sequence[Any], answer: int) -> None:
    said: dict[str, Any]
    try:
        said = {"value": call(*arguments)}
    except OSError as error:
        said = {"errno": error.errno}
    except CannotRun as lacking:
        said = {"lacks": str(lacking)}
    except AssertionError as error:
        said = {"failed": str(error)}
    except Exception as error:  # the one who asked tells the other side
        said = {"bug": f"{type(error).__name__}: {error}"}
    data = json.dumps(said).encode()
    while data:
        data = data[os.write(answer, data) :]
