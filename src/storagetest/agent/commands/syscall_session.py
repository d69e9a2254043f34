"""A hand: a process on the client that makes the system calls it is told, one line at a time.

Theory. A test of what two clients see of each other holds files open and locks taken on both while it looks
from one to the other. So on each there is one process that stays, the *worker*, which makes the calls, and
beside it this one, which reads and writes the lines and never touches the target: when a call hangs, or the
worker is to die with all that it holds, it is this process that says so.

The request has only a deadline, for the whole conversation. Then, a JSON object a line, each with a number
``n`` that the answer bears (bytes are dressed as in :mod:`storagetest.agent.json_bytes`):

- ``calls`` (a list of ``[name, arguments]``, see :mod:`storagetest.agent.syscalls`) and ``deadline`` (s): the
  worker makes one after the other; ``results`` has of each ``{"value": …}`` or ``{"errno": "ENOENT",
  "message": …}``. Or ``late``: they were not done in time, and the worker was killed; or ``died``: the
  worker was killed meanwhile.
- ``kill``: kill the worker; ``gone`` says whether it is gone (one that hangs in the kernel is not).
- ``restart``: put a fresh worker in the place of the old.
- ``start_capture``: capture the remote procedure calls that are sent;
  ``stop_capture``: end it, and ``rpcs`` has how many of each, ``lost`` how many packets the capture lost (see :mod:`storagetest.agent.rpc_capture`).
  ``refused`` says why there can be no capture.
- ``read`` (globs): ``texts`` has files of this machine, path → text, such as the counters in /proc.

Requests may overlap, but for ``calls``: there is one worker, and a second order while it is busy is
``busy``. The conversation ends when stdin does. Answers are lines of *progress*, as
:mod:`storagetest.agent` calls them.
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

from storagetest.agent.command_context import CommandContext
from storagetest.agent.json_bytes import decode_bytes, encode_bytes
from storagetest.agent.rpc_capture import RpcCapture
from storagetest.agent.syscalls import Syscalls
from storagetest.agent.worker_pool import init_worker, kill, reap, receive, send

__all__ = ["run"]

_CHUNK = 1 << 16
_BURIAL = 5.0
"""Seconds that a killed worker may take to be gone: it may have a file to close on a slow target."""


def run(_request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Do as told until stdin ends."""
    hand = _SessionServer(job)
    try:
        job.progress(phase="ready", boot=_boot(), pid=os.getpid())
        hand.serve()
    finally:
        hand.end()
    return {"served": hand.served}


class _SessionServer:
    """The process that speaks. ``served`` counts the requests."""

    def __init__(self, job: CommandContext) -> None:
        self.served = 0
        self._job = job
        self._worker = _Worker()
        self._busy: int | None = None
        self._until = 0.0
        self._rest = b""
        self._rpc_capture: RpcCapture | None = None

    def serve(self) -> None:
        while True:
            ready = self._wait()
            if self._worker.answers in ready:
                self._answer()
            elif self._busy is not None and time.monotonic() >= self._until:
                gone = self._worker.end()
                self._say(self._busy, late=True, gone=gone)
                self._busy = None
            if 0 in ready:
                data = os.read(0, _CHUNK)
                if not data:
                    return
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))

    def end(self) -> None:
        self._worker.end()

    def _wait(self) -> set[int]:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        until = self._job.until
        if self._busy is not None:
            poll.register(self._worker.answers, select.POLLIN)
            until = min(until, self._until)
        if time.monotonic() >= self._job.until:
            raise TimeoutError(errno.ETIMEDOUT, "the conversation's time is over")
        return {one for one, _ in poll.poll(max(0.0, until - time.monotonic()) * 1000)}

    def _obey(self, request: dict[str, Any]) -> None:
        self.served += 1
        number = request["n"]
        if "calls" in request:
            if self._busy is not None:
                self._say(number, busy=True)
                return
            if self._worker.ended:
                self._say(number, died=True)
                return
            self._busy, self._until = number, time.monotonic() + request["deadline"]
            with suppress(BrokenPipeError):  # it died: whoever waits for its answer finds out
                send(self._worker.orders, decode_bytes(request["calls"]))
        elif "read" in request:
            self._say(number, texts={path: _text(path) for one in request["read"] for path in glob.glob(one)})
        elif "start_capture" in request or "stop_capture" in request:
            self._say(number, **self._capture("start_capture" in request))
        else:
            gone = self._worker.end()
            if self._busy is not None:
                self._say(self._busy, died=True)
                self._busy = None
            if "restart" in request:
                self._worker = _Worker()
            self._say(number, gone=gone)

    def _capture(self, begin: bool) -> dict[str, Any]:
        rpcs, lost = self._rpc_capture.close() if self._rpc_capture is not None else ({}, 0)
        self._rpc_capture = None
        try:
            if begin:
                self._rpc_capture = RpcCapture()
        except OSError as error:
            return {"refused": error.strerror or str(error)}
        return {"rpcs": rpcs, "lost": lost}

    def _answer(self) -> None:
        number, self._busy = self._busy, None
        assert number is not None
        try:
            found = receive(self._worker.answers)
        except EOFError:
            self._worker.end()
            self._say(number, died=True)
            return
        self._say(number, results=found)

    def _say(self, number: int, **fields: Any) -> None:  # noqa: ANN401  # JSON values
        self._job.progress(n=number, **encode_bytes(fields))


class _Worker:
    """The process that makes the calls. ``ended``: it was killed; ``gone``: and is no more."""

    def __init__(self) -> None:
        orders_in, self.orders = os.pipe()
        self.answers, answers_out = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        self.ended = self.gone = False
        if self._pid:
            os.close(orders_in)
            os.close(answers_out)
            return
        try:
            os.close(self.orders)
            os.close(self.answers)
            init_worker(parent)
            _work(orders_in, answers_out)
        finally:
            os._exit(0)

    def end(self) -> bool:
        """Kill it; return whether it is gone. Safe to call twice."""
        if not self.ended:
            self.ended = True
            for descriptor in (self.orders, self.answers):
                os.close(descriptor)
        if not self.gone:
            kill(self._pid)
            self.gone = reap(self._pid, time.monotonic() + _BURIAL)
        return self.gone


def _work(orders: int, answers: int) -> None:
    calls = Syscalls()
    while True:
        try:
            wanted = receive(orders)
        except EOFError:
            return
        send(answers, [_perform(calls, name, arguments) for name, arguments in wanted])


def _perform(calls: Syscalls, name: str, arguments: list[Any]) -> dict[str, Any]:
    try:
        return {"value": calls.perform(name, arguments)}
    except OSError as error:
        known = errno.errorcode.get(error.errno or 0, "")
        return {"errno": known, "message": error.strerror or str(error), "path": str(error.filename or "")}
    except Exception as error:  # the other side is to be told
        return {"error": f"{name}: {type(error).__name__}: {error}"}


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _boot() -> str:
    return _text("/proc/sys/kernel/random/boot_id").strip()
