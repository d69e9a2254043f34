"""Syscall session: a process on the client that makes system calls on request of the controller.

Theory. A test of two clients keeps files open and locks acquired on both while it alternates between them. So
each client has one long-lived process, the *worker*, that makes the calls, and this process, which reads
requests and writes results and never accesses the target. If a call hangs or the worker is killed, this
process reports it.

The request has only a deadline, for the whole session. Then each line of stdin is a JSON object with a number
``n``, which the result repeats (bytes are encoded by :mod:`storagetest.agent.json_bytes`):

- ``calls`` (a list of ``[name, arguments]``, see :mod:`storagetest.agent.syscalls`) and ``deadline`` (s): the
  worker makes them one after the other; ``results`` has for each ``{"value": …}`` or ``{"errno": "ENOENT",
  "message": …}``. Or ``late``: they did not end by the deadline, and the worker was killed; or ``died``: the
  worker was killed.
- ``kill``: kill the worker; ``gone`` is false if it hangs in the kernel and cannot be killed.
- ``restart``: kill the worker and start a new one.
- ``start_capture``: start to capture RPC calls; ``stop_capture``: end it. ``rpcs`` has the number of each
  call, ``lost`` the number of lost packets (see :mod:`storagetest.agent.rpc_capture`). ``refused`` is the
  error if packets cannot be captured.
- ``read`` (globs): the contents of files of this machine, such as the counters in /proc; ``texts`` has
  path → text.

Requests may overlap, except ``calls``: there is one worker, and a second request while it is busy returns
``busy``. The session ends at the end of stdin. Results are *progress* messages of :mod:`storagetest.agent`.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import select
import time
from contextlib import suppress
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.json_bytes import decode_bytes, encode_bytes
from storagetest.agent.rpc_capture import RpcCapture
from storagetest.agent.syscalls import Syscalls
from storagetest.agent.worker_pool import fork_worker, kill, reap, receive, send

_CHUNK = 1 << 16
_REAP_TIMEOUT = 5.0
"""Seconds to wait for the end of a killed worker: it may have to close a file on a slow target (chosen)."""


def run(_request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Serve until stdin ends."""
    server = _SessionServer(context)
    try:
        boot = fsutil.read_text("/proc/sys/kernel/random/boot_id") or ""
        context.progress(phase="ready", boot=boot.strip(), pid=os.getpid())
        server.serve()
    finally:
        server.end()
    return {"served": server.served}


class _SessionServer:
    """Reads requests and writes results. ``served`` counts the requests."""

    def __init__(self, context: CommandContext) -> None:
        self.served = 0
        self._context = context
        self._worker = _SyscallWorker()
        self._busy: int | None = None
        self._until = 0.0
        self._rest = b""
        self._capture: RpcCapture | None = None

    def serve(self) -> None:
        while True:
            ready = self._wait()
            if self._worker.replies in ready:
                self._read_results()
            elif self._busy is not None and time.monotonic() >= self._until:
                gone = self._worker.end()
                self._write(self._busy, late=True, gone=gone)
                self._busy = None
            if 0 in ready:
                data = os.read(0, _CHUNK)
                if not data:
                    return
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._run_request(json.loads(line))

    def end(self) -> None:
        self._worker.end()

    def _wait(self) -> set[int]:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        until = self._context.until
        if self._busy is not None:
            poll.register(self._worker.replies, select.POLLIN)
            until = min(until, self._until)
        if time.monotonic() >= self._context.until:
            raise TimeoutError(errno.ETIMEDOUT, "the session's deadline is over")
        return {descriptor for descriptor, _ in poll.poll(max(0.0, until - time.monotonic()) * 1000)}

    def _run_request(self, request: dict[str, Any]) -> None:
        self.served += 1
        number = request["n"]
        if "calls" in request:
            if self._busy is not None:
                self._write(number, busy=True)
                return
            if self._worker.ended:
                self._write(number, died=True)
                return
            self._busy, self._until = number, time.monotonic() + request["deadline"]
            with suppress(BrokenPipeError):  # it died; _read_results reports it
                send(self._worker.commands, decode_bytes(request["calls"]))
        elif "read" in request:
            paths = [path for pattern in request["read"] for path in glob.glob(pattern)]
            self._write(number, texts={path: fsutil.read_text(path) or "" for path in paths})
        elif "start_capture" in request or "stop_capture" in request:
            self._write(number, **self._switch_capture("start_capture" in request))
        else:
            gone = self._worker.end()
            if self._busy is not None:
                self._write(self._busy, died=True)
                self._busy = None
            if "restart" in request:
                self._worker = _SyscallWorker()
            self._write(number, gone=gone)

    def _switch_capture(self, start: bool) -> dict[str, Any]:
        rpcs, lost = self._capture.close() if self._capture is not None else ({}, 0)
        self._capture = None
        try:
            if start:
                self._capture = RpcCapture()
        except OSError as error:
            return {"refused": error.strerror or str(error)}
        return {"rpcs": rpcs, "lost": lost}

    def _read_results(self) -> None:
        number, self._busy = self._busy, None
        assert number is not None
        try:
            results = receive(self._worker.replies)
        except EOFError:
            self._worker.end()
            self._write(number, died=True)
            return
        self._write(number, results=results)

    def _write(self, number: int, **fields: Any) -> None:  # noqa: ANN401  # JSON values
        self._context.progress(n=number, **encode_bytes(fields))


class _SyscallWorker:
    """The process that makes the calls. ``ended``: it was killed; ``gone``: it has ended."""

    def __init__(self) -> None:
        self._pid, self.commands, self.replies = fork_worker(_work)
        self.ended = self.gone = False

    def end(self) -> bool:
        """Kill the process; return whether it has ended. Safe to call twice."""
        if not self.ended:
            self.ended = True
            for descriptor in (self.commands, self.replies):
                os.close(descriptor)
        if not self.gone:
            kill(self._pid)
            self.gone = reap(self._pid, time.monotonic() + _REAP_TIMEOUT)
        return self.gone


def _work(commands: int, replies: int) -> None:
    calls = Syscalls()
    while True:
        try:
            requested = receive(commands)
        except EOFError:
            return
        send(replies, [_perform(calls, name, arguments) for name, arguments in requested])


def _perform(calls: Syscalls, name: str, arguments: list[Any]) -> dict[str, Any]:
    try:
        return {"value": calls.perform(name, arguments)}
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "")
        return {"errno": code, "message": error.strerror or str(error), "path": str(error.filename or "")}
    except Exception as error:  # the controller raises it
        return {"error": f"{name}: {type(error).__name__}: {error}"}
