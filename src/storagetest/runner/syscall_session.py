"""A hand on a client: system calls made there, one at a time, as if they were made here.

    with open_syscall_session(client) as a:
        a.chdir("/mnt/nas/case-7")
        fd = a.open("f", os.O_CREAT | os.O_RDWR)
        a.lock(fd, fcntl.F_WRLCK, 0, 10)

Each call is one system call on the client and one round trip, within a deadline, and raises OSError as the
system call did. The other side is :mod:`storagetest.agent.commands.syscall_session`.

Rules:

1. A session's calls are made by one worker process: what it has open, and the locks that it holds, end with
   it (:meth:`SyscallSession.kill_worker`). A new one (:meth:`SyscallSession.restart_worker`) has none.
2. A call that hangs kills the worker, and is :class:`DeadlineExceeded` here, never an answer that
   comes later. With its worker restarted, the session can be used again.
3. What the line says must be the answer to what was asked. Anything else is :class:`HostError`, and the
   hand is not to be used any more.
4. :meth:`SyscallSession.start` starts calls without waiting for them, so that two sessions can be at work at
   once; :meth:`PendingCalls.result` returns the result.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from storagetest.agent.json_bytes import decode_bytes, encode_bytes
from storagetest.errors import ClientLacks, DeadlineExceeded, HostError, NotInstalled
from storagetest.hosts import Host, InteractiveProcess
from storagetest.workloads._agent.run import NO_PYTHON, open_agent_session

__all__ = ["Call", "CapturedCalls", "PendingCalls", "StatResult", "SyscallSession", "open_syscall_session"]

Call = tuple[Any, ...]
"""A call's name and its arguments, such as ``("pwrite", fd, b"x", 0)``."""

_LIFE = 12 * 3600.0
"""Seconds after which a hand is ended wherever it is: no session of tests takes longer."""
_READY = 60.0
_USUAL = 20.0
"""Seconds that a call may take on a target that is well, with the client's CPU short."""
_MARGIN = 15.0
"""Seconds after a call's deadline within which the hand itself must have said so."""


@dataclass(frozen=True, slots=True)
class StatResult:
    """What stat(2) says; times in nanoseconds since the epoch."""

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
    """Calls that were started; their answers come in time."""

    def __init__(self, hand: SyscallSession, number: int, calls: Sequence[Call], deadline: float) -> None:
        self._hand, self._number, self._calls, self._deadline = hand, number, calls, deadline

    def done(self, within: float = 0.0) -> bool:
        """Whether the calls have ended, waiting up to ``within`` seconds for it."""
        return self._hand._has_answer(self._number, within)  # noqa: SLF001  # its other half

    def results(self) -> list[Any]:
        """Wait for the end, and return what each call returned, or the OSError that it raised."""
        answer = self._hand._answer(self._number, self._deadline + _MARGIN)  # noqa: SLF001
        return self._hand._read(answer, self._calls, self._deadline)  # noqa: SLF001

    def result(self) -> Any:  # noqa: ANN401  # whatever the call returns
        """Wait for the one call's end, and return or raise what it did."""
        (found,) = self.results()
        if isinstance(found, OSError):
            raise found
        return found


class SyscallSession:
    """The controller's side of a hand. For one thread; made by :func:`open_syscall_session`.

    ``name`` is the client's. ``boot`` tells its kernel from others (the boot id of random(4)); ``pid`` is the
    process that speaks there. ``usable`` is false once the line to it is broken.
    """

    def __init__(self, name: str, talk: InteractiveProcess) -> None:
        self.name = name
        self.usable = True
        self._talk = talk
        self._asked = 0
        self._early: dict[int, dict[str, Any]] = {}
        ready = self._hear(_READY)
        while ready.get("phase") != "ready":
            _complain(self.name, ready)
            ready = self._hear(_READY)
        self.boot, self.pid = str(ready.get("boot")), int(ready.get("pid", 0))

    # The hand itself.

    def start(self, *calls: Call, deadline: float = _USUAL) -> PendingCalls:
        """Begin to make ``calls``, one after the other, all within ``deadline`` seconds."""
        wanted = [[name, list(arguments)] for name, *arguments in calls]
        return PendingCalls(self, self._ask(calls=encode_bytes(wanted), deadline=deadline), calls, deadline)

    def each(self, calls: Sequence[Call], *, deadline: float = _USUAL) -> list[Any]:
        """Make ``calls`` in one round trip; return of each its value, or the OSError that it raised."""
        return self.start(*calls, deadline=deadline).results()

    def call(self, name: str, *arguments: Any, deadline: float = _USUAL) -> Any:  # noqa: ANN401
        """Make one call and return its value. Raises OSError as the call did."""
        return self.start((name, *arguments), deadline=deadline).result()

    def kill_worker(self) -> None:
        """Kill the hand's process with what it holds, as SIGKILL does; it is gone on return."""
        self._must_be_gone(self._answer(self._ask(kill=True), _MARGIN))

    def restart_worker(self) -> None:
        """Give the hand a fresh process, which holds nothing."""
        self._must_be_gone(self._answer(self._ask(restart=True), _MARGIN))

    def read_files(self, globs: Sequence[str]) -> Mapping[str, str]:
        """Read files of the client itself, such as counters in /proc: path → text."""
        texts: Mapping[str, str] = self._answer(self._ask(read_files=list(globs)), _MARGIN)["files"]
        return texts

    def start_rpc_capture(self) -> None:
        """Begin to capture the remote procedure calls that leave the client. Raises :class:`ClientLacks`."""
        refused = self._answer(self._ask(start_capture=True), _MARGIN).get("refused")
        if refused:
            raise ClientLacks(f"{self.name}: packets cannot be captured there: {refused}")

    def stop_rpc_capture(self) -> CapturedCalls:
        """End the capture, and return how many calls there were."""
        result = self._answer(self._ask(stop_capture=True), _MARGIN)
        return CapturedCalls(result["rpcs"], result["lost"])

    # Calls; see storagetest.agent.syscalls.

    def chdir(self, directory: str) -> None:
        """Take names as relative to ``directory``."""
        self.call("chdir", directory)

    def close_all(self) -> None:
        """Close and unmap everything."""
        self.call("close_all")

    def write_file(self, name: str, data: bytes, flags: int = os.O_CREAT | os.O_TRUNC) -> None:
        """Open for writing with ``flags``, write all of ``data``, close."""
        self.call("write_file", name, data, flags)

    def read_file(self, name: str) -> bytes:
        """Open, read to the end, close."""
        return bytes(self.call("read_file", name))

    def remove(self, name: str) -> None:
        """Remove a file or a tree, or nothing where nothing is."""
        self.call("remove", name, deadline=4 * _USUAL)

    def evict_page_cache(self, fd: int) -> None:
        """Write back what the page cache holds of a file, and drop it."""
        self.call("evict_page_cache", fd)

    def open(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """open(2)."""
        return int(self.call("open", name, flags, mode))

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
        """Whether lstat(2) finds something."""
        try:
            self.call("stat", name)
        except FileNotFoundError:
            return False
        return True

    def can_open(self, name: str) -> bool:
        """Whether open(2) finds something."""
        try:
            self.close(self.open(name))
        except FileNotFoundError:
            return False
        return True

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
        """All names in a directory, sorted."""
        return list(self.call("listdir", name))

    def chmod(self, name: str, mode: int) -> None:
        """chmod(2)."""
        self.call("chmod", name, mode)

    def utime(self, name: str, access: int, modification: int) -> None:
        """utimensat(2), in nanoseconds."""
        self.call("utime", name, access, modification)

    def lock(self, fd: int, kind: int, start: int = 0, length: int = 0) -> None:
        """fcntl(2), F_SETLK: at once, or BlockingIOError; ``kind`` is F_RDLCK, F_WRLCK or F_UNLCK."""
        try:
            self.call("lock", fd, kind, start, length, False)
        except PermissionError as refused:  # POSIX lets a system say EACCES for EAGAIN
            raise BlockingIOError(errno.EAGAIN, refused.strerror) from None

    def try_lock(self, fd: int, kind: int, start: int = 0, length: int = 0) -> bool:
        """Whether :meth:`lock` is granted; it is held then."""
        try:
            self.lock(fd, kind, start, length)
        except BlockingIOError:
            return False
        return True

    def wait_for_lock(
        self, fd: int, kind: int, start: int = 0, length: int = 0, *, deadline: float
    ) -> PendingCalls:
        """fcntl(2), F_SETLKW, begun."""
        return self.start(("lock", fd, kind, start, length, True), deadline=deadline)

    def get_conflicting_lock(
        self, fd: int, kind: int, start: int = 0, length: int = 0
    ) -> tuple[int, int, int] | None:
        """fcntl(2), F_GETLK: kind, start and length of a lock in the way of this one, if there is one."""
        found, begin, size = self.call("getlk", fd, kind, start, length)
        return None if found == fcntl.F_UNLCK else (found, begin, size)

    def flock(self, fd: int, operation: int) -> None:
        """flock(2), LOCK_NB: at once, or BlockingIOError."""
        try:
            self.call("flock", fd, operation | fcntl.LOCK_NB)
        except PermissionError as refused:  # what Linux's SMB client says for EWOULDBLOCK
            raise BlockingIOError(errno.EAGAIN, refused.strerror) from None

    def may_flock(self, fd: int, operation: int) -> bool:
        """Whether :meth:`flock` is granted; it is held then."""
        try:
            self.flock(fd, operation)
        except BlockingIOError:
            return False
        return True

    # The line.

    def _ask(self, **request: Any) -> int:  # noqa: ANN401  # JSON values
        self._asked += 1
        with self._or_unusable():
            self._talk.send_line(json.dumps({"n": self._asked, **request}))
        return self._asked

    @contextmanager
    def _or_unusable(self) -> Iterator[None]:
        try:
            yield
        except (HostError, ClientLacks):
            self.usable = False
            raise

    def _has_answer(self, number: int, within: float) -> bool:
        try:
            self._gather(number, within)
        except DeadlineExceeded:
            return False
        return True

    def _answer(self, number: int, deadline: float) -> dict[str, Any]:
        with self._or_unusable():
            self._gather(number, deadline)
        return self._early.pop(number)

    def _gather(self, number: int, deadline: float) -> None:
        """Hear what is said until it is the answer to ``number``; each line within ``deadline`` seconds."""
        while number not in self._early:
            said = self._hear(deadline)
            known = said.get("n")
            if not isinstance(known, int) or not 0 < known <= self._asked:
                _complain(self.name, said)
                raise HostError(f"{self.name}: the hand said what nobody had asked for: {said!r:.200}")
            self._early[known] = said

    def _hear(self, deadline: float) -> dict[str, Any]:
        line = self._talk.read_line(deadline)
        try:
            found = decode_bytes(json.loads(line))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise HostError(f"{self.name}: the hand's line is garbage: {line!r:.200}")
        return found

    def _read(self, answer: Mapping[str, Any], calls: Sequence[Call], deadline: float) -> list[Any]:
        shown = ", ".join(str(name) for name, *_ in calls[:3]) + (" …" if len(calls) > 3 else "")
        if answer.get("late"):
            hangs = "" if answer.get("gone") else ", which hangs in the kernel (is its target dead?)"
            raise DeadlineExceeded(
                f"{self.name}: {shown} did not end within {deadline:g} s; its process was killed{hangs}"
            )
        if answer.get("died"):
            raise HostError(f"{self.name}: the hand's process died while it was to do: {shown}")
        found = answer.get("results")
        if not isinstance(found, list) or len(found) != len(calls):
            raise HostError(f"{self.name}: the hand's answer is none: {dict(answer)!r:.200}")
        return [self._value(one, call) for one, call in zip(found, calls, strict=True)]

    def _value(self, one: Mapping[str, Any], call: Call) -> Any:  # noqa: ANN401
        if "value" in one:
            return one["value"]
        if "errno" in one:
            number = getattr(errno, one["errno"], 0)
            return OSError(number, f"{one['message']} ({self.name}: {call[0]})", one.get("path") or None)
        raise HostError(f"{self.name}: {one.get('bug', one)!r:.300}")

    def _must_be_gone(self, answer: Mapping[str, Any]) -> None:
        if not answer.get("gone"):
            raise HostError(f"{self.name}: the hand's process cannot be killed: it hangs in the kernel")


@contextmanager
def open_syscall_session(client: Host) -> Iterator[SyscallSession]:
    """Start a hand on ``client`` and yield it; nothing of it is left afterwards.

    Raises :class:`ClientLacks` where there is no Python that it runs on, and :class:`HostError`.
    """
    with open_agent_session(client, {"command": "syscall_session"}, deadline=_LIFE) as talk:
        try:
            hand = SyscallSession(client.name, talk)
        except NotInstalled as error:
            raise ClientLacks(f"{client.name}: {NO_PYTHON}") from error
        yield hand


def _complain(name: str, said: Mapping[str, Any]) -> None:
    """Raise what the agent says of itself; return where it says nothing of the kind."""
    if said.get("t") != "error":
        return
    if said.get("kind") == "python":
        raise ClientLacks(f"{name}: python3 is {said.get('message')}, too old: a hand needs 3.9 or newer")
    raise HostError(f"{name}: the hand ended: {said.get('message')}")
