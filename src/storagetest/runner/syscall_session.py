"""Remote syscall session: system calls made on a client, one at a time, as if they were made here.

    with open_syscall_session(client) as session:
        session.chdir("/mnt/nas/case-7")
        fd = session.open("f", os.O_CREAT | os.O_RDWR)
        session.lock(fd, fcntl.F_WRLCK, 0, 10)

Each call is one system call on the client and one round trip within a deadline, and raises OSError as the
system call did. The other side is :mod:`storagetest.agent.commands.syscall_session`.

Rules:

1. A session has one worker process: its open files and locks end with it
   (:meth:`SyscallSession.kill_worker`), and a new one (:meth:`SyscallSession.restart_worker`) has none of
   them.
2. A call that hangs kills the worker and raises :class:`DeadlineExceeded`; its result never comes later.
   After a restart the session can be used again.
3. A message that is not the response to a request is :class:`HostError`, and the session is unusable.
4. :meth:`SyscallSession.start` starts calls without waiting for them, so two sessions can run calls at the
   same time; :meth:`PendingCalls.result` waits.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from storagetest.agent.json_bytes import decode_bytes, encode_bytes
from storagetest.errors import ClientLacks, DeadlineExceeded, HostError, NotInstalled
from storagetest.hosts import Host, InteractiveProcess
from storagetest.workloads._agent.run import NO_PYTHON, open_agent_session

Call = tuple[Any, ...]
"""A call's name and its arguments, such as ``("pwrite", fd, b"x", 0)``."""

_LIFETIME = 12 * 3600.0
"""Deadline in seconds of a session; no test run takes longer."""
_READY = 60.0
_CALL_TIMEOUT = 20.0
"""Default timeout in seconds of a call on a healthy target, if the client's CPU is busy."""
_HOLDING_NOTHING = frozenset({"chdir", "exists", "mkdir", "remove", "sync"})
"""Calls that leave nothing open and no lock."""
_MARGIN = 15.0
"""Seconds beyond a call's deadline within which the client must have reported that it passed."""


@dataclass(frozen=True, slots=True)
class StatResult:
    """Result of stat(2); times in nanoseconds since the epoch."""

    ino: int
    mode: int
    nlink: int
    size: int
    blocks: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class CapturedCalls:
    """Calls by ``program.procedure`` that a capture found; packets that it ``lost`` may have held more."""

    counts: Mapping[str, int]
    lost: int


class PendingCalls:
    """Calls that were started and whose results come later."""

    def __init__(self, session: SyscallSession, number: int, calls: Sequence[Call], deadline: float) -> None:
        self._session, self._number, self._calls, self._deadline = session, number, calls, deadline

    def done(self, within: float = 0.0) -> bool:
        """Whether the calls have ended within ``within`` seconds."""
        return self._session._has_response(self._number, within)  # noqa: SLF001  # same module

    def results(self) -> list[Any]:
        """Wait for the end, and return each call's value, or the OSError that it raised."""
        response = self._session._wait_response(self._number, self._deadline + _MARGIN)  # noqa: SLF001
        return self._session._parse_results(response, self._calls, self._deadline)  # noqa: SLF001

    def result(self) -> Any:  # noqa: ANN401  # whatever the call returns
        """Wait for the end of the only call, and return its value or raise its error."""
        (result,) = self.results()
        if isinstance(result, OSError):
            raise result
        return result


class SyscallSession:
    """The controller's side of a session; made by :func:`open_syscall_session`. Not thread-safe.

    ``name`` is the client's. ``boot`` identifies its kernel (the boot id of random(4)); ``pid`` is that of
    the agent there. ``usable`` is false after an error of the channel.
    """

    def __init__(self, name: str, process: InteractiveProcess) -> None:
        self.name = name
        self.usable = True
        self._may_hold = False
        """Whether the worker may have open files or locks, or may have ended."""
        self._process = process
        self._last_number = 0
        self._responses: dict[int, dict[str, Any]] = {}
        ready = self._read_message(_READY)
        while ready.get("phase") != "ready":
            _raise_agent_error(self.name, ready)
            ready = self._read_message(_READY)
        self.boot, self.pid = str(ready.get("boot")), int(ready.get("pid", 0))

    # The session itself.

    def start(self, *calls: Call, deadline: float = _CALL_TIMEOUT) -> PendingCalls:
        """Start ``calls``, which run one after the other, all within ``deadline`` seconds."""
        wanted = [[name, list(arguments)] for name, *arguments in calls]
        self._may_hold = self._may_hold or any(name not in _HOLDING_NOTHING for name, *_ in calls)
        return PendingCalls(
            self, self._send_request(calls=encode_bytes(wanted), deadline=deadline), calls, deadline
        )

    def each(self, calls: Sequence[Call], *, deadline: float = _CALL_TIMEOUT) -> list[Any]:
        """Make ``calls`` in one round trip; return each call's value, or the OSError that it raised."""
        return self.start(*calls, deadline=deadline).results()

    def call_all(self, *calls: Call, deadline: float = _CALL_TIMEOUT) -> list[Any]:
        """Make all ``calls`` in one round trip and return their values. Raises the first OSError of them."""
        results = self.each(calls, deadline=deadline)
        for result in results:
            if isinstance(result, OSError):
                raise result
        return results

    def call(self, name: str, *arguments: Any, deadline: float = _CALL_TIMEOUT) -> Any:  # noqa: ANN401
        """Make one call and return its value. Raises OSError as the call did."""
        return self.start((name, *arguments), deadline=deadline).result()

    def kill_worker(self) -> None:
        """Kill the worker with its open files and locks by SIGKILL; it has ended on return."""
        self._may_hold = True
        self._wait_killed(self._send_request(kill=True))

    def restart_worker(self) -> None:
        """Start a new worker, without open files and locks; one that can have none is kept."""
        self.start_restart()()

    def start_restart(self) -> Callable[[], None]:
        """Start :meth:`restart_worker`; call what is returned to wait for its end."""
        if not self._may_hold:
            return lambda: None
        number = self._send_request(restart=True)

        def wait() -> None:
            self._wait_killed(number)
            self._may_hold = False

        return wait

    def read_files(self, globs: Sequence[str]) -> Mapping[str, str]:
        """Read files of the client itself, such as counters in /proc: path → text."""
        texts: Mapping[str, str] = self._request(read=list(globs))["texts"]
        return texts

    def start_rpc_capture(self) -> None:
        """Start to capture the remote procedure calls that the client sends. Raises :class:`ClientLacks`."""
        refused = self._request(start_capture=True).get("refused")
        if refused:
            raise ClientLacks(f"{self.name}: packets cannot be captured there: {refused}")

    def stop_rpc_capture(self) -> CapturedCalls:
        """Stop the capture, and return the counts."""
        result = self._request(stop_capture=True)
        return CapturedCalls(result["rpcs"], result["lost"])

    # Calls; see storagetest.agent.syscalls.

    def chdir(self, directory: str) -> None:
        """Resolve names relative to ``directory``."""
        self.call("chdir", directory)

    def close_all(self) -> None:
        """Close and unmap all files."""
        self.call("close_all")

    def write_file(self, name: str, data: bytes, flags: int = os.O_CREAT | os.O_TRUNC) -> None:
        """Open for writing with ``flags``, write all of ``data``, close."""
        self.call("write_file", name, data, flags)

    def read_file(self, name: str) -> bytes:
        """Open, read to the end, close."""
        return bytes(self.call("read_file", name))

    def remove(self, name: str) -> None:
        """Remove a file or a tree, if it exists."""
        self.call("remove", name, deadline=4 * _CALL_TIMEOUT)

    def evict(self, fd: int) -> None:
        """Write back a file's pages in the page cache, and drop them (fsync, posix_fadvise)."""
        self.call("evict", fd)

    def open(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """open(2)."""
        return int(self.call("open", name, flags, mode))

    def open_at(self, directory: int, name: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """openat(2): ``name`` is relative to the open directory ``directory``."""
        return int(self.call("open_at", directory, name, flags, mode))

    def dup(self, fd: int) -> int:
        """dup(2)."""
        return int(self.call("dup", fd))

    def close(self, fd: int) -> None:
        """close(2)."""
        self.call("close", fd)

    def read(self, fd: int, size: int) -> bytes:
        """read(2)."""
        return bytes(self.call("read", fd, size))

    def write(self, fd: int, data: bytes) -> int:
        """write(2)."""
        return int(self.call("write", fd, data))

    def pread(self, fd: int, size: int, offset: int = 0) -> bytes:
        """pread(2)."""
        return bytes(self.call("pread", fd, size, offset))

    def pwrite(self, fd: int, data: bytes, offset: int = 0) -> int:
        """pwrite(2)."""
        return int(self.call("pwrite", fd, data, offset))

    def fsync(self, fd: int) -> None:
        """fsync(2)."""
        self.call("fsync", fd)

    def ftruncate(self, fd: int, size: int) -> None:
        """ftruncate(2)."""
        self.call("ftruncate", fd, size)

    def fstat(self, fd: int) -> StatResult:
        """fstat(2)."""
        return StatResult(**self.call("fstat", fd))

    def stat(self, name: str) -> StatResult:
        """lstat(2)."""
        return StatResult(**self.call("stat", name))

    def exists(self, name: str) -> bool:
        """Whether lstat(2) succeeds."""
        return _succeeds(FileNotFoundError, self.call, "stat", name)

    def can_open(self, name: str) -> bool:
        """Whether open(2) succeeds."""
        return _succeeds(FileNotFoundError, lambda: self.close(self.open(name)))

    def truncate(self, name: str, size: int) -> None:
        """truncate(2)."""
        self.call("truncate", name, size)

    def rename(self, old: str, new: str) -> None:
        """rename(2)."""
        self.call("rename", old, new)

    def link(self, old: str, new: str) -> None:
        """link(2)."""
        self.call("link", old, new)

    def symlink(self, text: str, name: str) -> None:
        """symlink(2)."""
        self.call("symlink", text, name)

    def readlink(self, name: str) -> str:
        """readlink(2)."""
        return str(self.call("readlink", name))

    def unlink(self, name: str) -> None:
        """unlink(2)."""
        self.call("unlink", name)

    def mkdir(self, name: str, mode: int = 0o777) -> None:
        """mkdir(2)."""
        self.call("mkdir", name, mode)

    def rmdir(self, name: str) -> None:
        """rmdir(2)."""
        self.call("rmdir", name)

    def listdir(self, name: str = ".") -> list[str]:
        """Return all names in a directory, sorted."""
        return list(self.call("listdir", name))

    def list_entries(self, name: str = ".") -> dict[str, tuple[int, str]]:
        """Return d_ino and type of each entry of a directory (readdir(3)).

        The types are "file", "directory", "symbolic link" and "other".
        """
        return {entry: (inode, kind) for entry, inode, kind in self.call("scan", name)}

    def chmod(self, name: str, mode: int) -> None:
        """chmod(2)."""
        self.call("chmod", name, mode)

    def utime(self, name: str, access: int, modification: int) -> None:
        """utimensat(2), in nanoseconds."""
        self.call("utime", name, access, modification)

    def lock(self, fd: int, kind: int, start: int = 0, length: int = 0) -> None:
        """fcntl(2), F_SETLK: raises BlockingIOError at once; ``kind`` is F_RDLCK, F_WRLCK or F_UNLCK."""
        with _refusal_as_eagain():  # POSIX allows EACCES
            self.call("lock", fd, kind, start, length, False)

    def try_lock(self, fd: int, kind: int, start: int = 0, length: int = 0) -> bool:
        """Whether :meth:`lock` succeeds; the lock is held then."""
        return _succeeds(BlockingIOError, self.lock, fd, kind, start, length)

    def wait_for_lock(
        self, fd: int, kind: int, start: int = 0, length: int = 0, *, deadline: float
    ) -> PendingCalls:
        """fcntl(2), F_SETLKW, started."""
        return self.start(("lock", fd, kind, start, length, True), deadline=deadline)

    def get_conflicting_lock(
        self, fd: int, kind: int, start: int = 0, length: int = 0
    ) -> tuple[int, int, int] | None:
        """fcntl(2), F_GETLK: kind, start and length of a conflicting lock, or None."""
        result, begin, size = self.call("getlk", fd, kind, start, length)
        return None if result == fcntl.F_UNLCK else (result, begin, size)

    def flock(self, fd: int, operation: int) -> None:
        """flock(2), LOCK_NB: raises BlockingIOError at once."""
        with _refusal_as_eagain():  # Linux's SMB client returns EACCES
            self.call("flock", fd, operation | fcntl.LOCK_NB)

    def try_flock(self, fd: int, operation: int) -> bool:
        """Whether :meth:`flock` succeeds; the lock is held then."""
        return _succeeds(BlockingIOError, self.flock, fd, operation)

    # The channel.

    def _send_request(self, **request: Any) -> int:  # noqa: ANN401  # JSON values
        self._last_number += 1
        with self._or_unusable():
            self._process.send_line(json.dumps({"n": self._last_number, **request}))
        return self._last_number

    @contextmanager
    def _or_unusable(self) -> Iterator[None]:
        try:
            yield
        except (HostError, ClientLacks):
            self.usable = False
            raise

    def _request(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON values
        """Make a request that the agent's own process answers, and return the response."""
        return self._wait_response(self._send_request(**request), _MARGIN)

    def _has_response(self, number: int, within: float) -> bool:
        try:
            self._read_until(number, within)
        except DeadlineExceeded:
            return False
        return True

    def _wait_response(self, number: int, deadline: float) -> dict[str, Any]:
        with self._or_unusable():
            self._read_until(number, deadline)
        return self._responses.pop(number)

    def _read_until(self, number: int, deadline: float) -> None:
        """Read messages until the response to ``number``; each within ``deadline`` seconds."""
        while number not in self._responses:
            message = self._read_message(deadline)
            received = message.get("n")
            if not isinstance(received, int) or not 0 < received <= self._last_number:
                _raise_agent_error(self.name, message)
                raise HostError(f"{self.name}: unexpected message of the syscall session: {message!r:.200}")
            self._responses[received] = message

    def _read_message(self, deadline: float) -> dict[str, Any]:
        line = self._process.read_line(deadline)
        try:
            result = decode_bytes(json.loads(line))
        except ValueError:
            result = None
        if not isinstance(result, dict):
            raise HostError(f"{self.name}: the syscall session sent an invalid message: {line!r:.200}")
        return result

    def _parse_results(
        self, response: Mapping[str, Any], calls: Sequence[Call], deadline: float
    ) -> list[Any]:
        shown = ", ".join(str(name) for name, *_ in calls[:3]) + (" …" if len(calls) > 3 else "")
        self._may_hold = self._may_hold or "results" not in response
        if response.get("late"):
            hangs = "" if response.get("gone") else ", which hangs in the kernel (is its target dead?)"
            raise DeadlineExceeded(
                f"{self.name}: {shown} did not end within {deadline:g} s; its process was killed{hangs}"
            )
        if response.get("died"):
            raise HostError(f"{self.name}: the worker of the syscall session died during {shown}")
        result = response.get("results")
        if not isinstance(result, list) or len(result) != len(calls):
            raise HostError(f"{self.name}: invalid response of the syscall session: {dict(response)!r:.200}")
        return [self._value(entry, call) for entry, call in zip(result, calls, strict=True)]

    def _value(self, entry: Mapping[str, Any], call: Call) -> Any:  # noqa: ANN401
        if "value" in entry:
            return entry["value"]
        if "errno" in entry:
            number = getattr(errno, entry["errno"], 0)
            return OSError(number, f"{entry['message']} ({self.name}: {call[0]})", entry.get("path") or None)
        raise HostError(f"{self.name}: {entry.get('error', entry)!r:.300}")

    def _wait_killed(self, number: int) -> None:
        """Wait for the response to a request that kills the worker."""
        if not self._wait_response(number, _MARGIN).get("gone"):
            raise HostError(
                f"{self.name}: the worker of the syscall session cannot be killed: it hangs in the kernel"
            )


def restart_workers(*sessions: SyscallSession) -> None:
    """Do :meth:`SyscallSession.restart_worker` in all ``sessions`` at the same time."""
    for wait in [session.start_restart() for session in sessions]:
        wait()


@contextmanager
def open_syscall_session(client: Host) -> Iterator[SyscallSession]:
    """Start a session on ``client`` and yield it; nothing of it is left afterwards.

    Raises :class:`ClientLacks` where there is no Python that it runs on, and :class:`HostError`.
    """
    with open_agent_session(client, {"command": "syscall_session"}, deadline=_LIFETIME) as process:
        try:
            session = SyscallSession(client.name, process)
        except NotInstalled as error:
            raise ClientLacks(f"{client.name}: {NO_PYTHON}") from error
        yield session


def _succeeds(error: type[OSError], call: Callable[..., object], *arguments: object) -> bool:
    """Make ``call``; return False if it raises ``error``."""
    try:
        call(*arguments)
    except error:
        return False
    return True


@contextmanager
def _refusal_as_eagain() -> Iterator[None]:
    """Raise EAGAIN if a lock was refused by EACCES."""
    try:
        yield
    except PermissionError as refused:
        raise BlockingIOError(errno.EAGAIN, refused.strerror) from None


def _raise_agent_error(name: str, message: Mapping[str, Any]) -> None:
    """Raise the error in the agent's ``message``; return if it is not an error."""
    if message.get("t") != "error":
        return
    if message.get("kind") == "python":
        raise ClientLacks(
            f"{name}: python3 is {message.get('message')}, too old: a syscall session needs 3.9 or newer"
        )
    raise HostError(f"{name}: the syscall session ended: {message.get('message')}")
