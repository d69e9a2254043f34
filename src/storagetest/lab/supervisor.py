"""The supervisor: one process per lab that starts its machines, reads their consoles and kills them.

``python -m storagetest.lab.supervisor DIRECTORY`` runs the machines as its children. No process outlives the
lab:

* the machines end with the supervisor, even if it is killed: the kernel sends SIGKILL (see
  subprocess_util.py);
* the kernel notifies the supervisor at once when `up` ends (a pipe) or the lab's owner ends (a pidfd);
* the supervisor holds the lab's lock (see lab_locks.py), which the kernel releases when it ends.

It accepts requests on a socket, because only the supervisor can start its children:

* ``{"start": MACHINE, "resume": BOOLEAN}`` starts a machine that has ended, by a boot or from its snapshot;
* ``{"resume": true}`` replaces all machines by those of the snapshot.

The directory is renamed before it is removed, so a new lab with the same name never sees files of the old
one. supervisor_fsm.py decides what to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from storagetest.errors import LabError
from storagetest.files import replace_file
from storagetest.lab import snapshots
from storagetest.lab.process_watch import SilenceClock, read_threads
from storagetest.lab.subprocess_util import connect_unix, die_with_parent, tail
from storagetest.lab.supervisor_fsm import (
    Action,
    LabEvent,
    Notify,
    SendSettings,
    StartMachine,
    StopLab,
    SupervisorFsm,
)

PLAN, STATES, LOCK = "plan.json", "states.json", "lock"
_CONTROL, _REMOVED = "control", ".gone-"
COMMIT = b"keep\n"
"""Message of `up` on stdin: the lab may outlive it."""
_CONSOLE_LIMIT = 8 << 20  # bytes per log file
_CHUNK = 1 << 16
_REQUEST_TIMEOUT = 10.0  # seconds
_WATCH_INTERVAL = 1.0
"""Seconds between two looks at machines that start (chosen)."""


class _Machine:
    """A machine's QEMU process and its console; with ``resume``, QEMU loads the machine's snapshot."""

    def __init__(self, plan: dict[str, Any], *, resume: bool) -> None:
        self.name: str = plan["name"]
        listening = {name: _listen(name) for name in plan["listen"]}
        descriptors = {name: end.fileno() for name, end in listening.items()}
        self._rest = b""
        Path(f"qmp-{self.name}").unlink(missing_ok=True)  # of an earlier start: it means that QEMU is ready
        with Path(f"qemu-{self.name}.log").open("ab") as stderr:
            self.process = subprocess.Popen(
                [
                    _with_descriptors(argument, descriptors)
                    for argument in plan["resume_argv" if resume else "argv"]
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=list(descriptors.values()),
                preexec_fn=die_with_parent(),  # noqa: PLW1509  # safe with threads, see there
            )
        for end in listening.values():
            end.close()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self.console = self.process.stdin, self.process.stdout
        self._log = Path(f"console-{self.name}.log").open("ab")  # noqa: SIM115  # closed by end()
        if resume:
            threading.Thread(target=self._load, args=(plan["state"],), daemon=True).start()
        self._silence = SilenceClock(partial(read_threads, self.process.pid), time.monotonic())

    def silent(self, now: float) -> float:
        """Return the seconds since its console's last output in which it could run."""
        return self._silence.silent(now)

    def _load(self, state: str) -> None:
        """Make QEMU load the snapshot; end it if that fails, which is noticed at the end of its console."""
        try:
            snapshots.load(Path(f"qmp-{self.name}"), state)
            self.write({})  # the guest responds with the milestone "resumed"
        except LabError as error:
            with Path(f"qemu-{self.name}.log").open("a") as log:
                log.write(f"{error}\n")
            self.process.kill()

    def write(self, message: dict[str, Any]) -> None:
        """Send a message to guest/resume.py. It is smaller than the pipe's buffer, so this never blocks."""
        with contextlib.suppress(BrokenPipeError):  # QEMU has exited, which its console reports
            self._stdin.write(json.dumps(message).encode() + b"\n")
            self._stdin.flush()

    def read(self) -> list[str] | None:
        """Return the complete lines that were received, or None if QEMU has exited."""
        data = os.read(self.console.fileno(), _CHUNK)
        if not data:
            return None
        self._silence.restart(time.monotonic())
        if os.fstat(self._log.fileno()).st_size < _CONSOLE_LIMIT:
            self._log.write(data)
            self._log.flush()
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_CHUNK:]
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    def stderr_tail(self) -> str:
        return tail(Path(f"qemu-{self.name}.log"), 3) or f"exit status {self.process.returncode}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.console.close()
        self._log.close()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()


def settings_file(machine: str) -> str:
    """Return the name of the file with the settings that a resumed machine gets; see guest/resume.py."""
    return f"settings-{machine}.json"


def _with_descriptors(argument: str, descriptors: dict[str, int]) -> str:
    for name, descriptor in descriptors.items():
        argument = argument.replace(f"{{fd:{name}}}", str(descriptor))
    return argument


class LabSupervisor:
    """Runs one lab in the current directory until an event ends it."""

    def __init__(self) -> None:
        plan = _plan()
        names = [machine["name"] for machine in plan["machines"]]
        self._fsm = SupervisorFsm(names, plan["boot_timeout"], plan["boot_limit"], resume=plan["resume"])
        self._machines: dict[str, _Machine] = {}
        self._selector = selectors.DefaultSelector()
        self._stop_reason = ""
        self._written = ""
        self._watch_lab(plan["owner"])

    def run(self) -> str:
        """Run the lab until it ends; kill its machines and return the reason."""
        try:
            self._do(self._fsm.begin(time.monotonic()))
            while not self._stop_reason:
                for key, _ in self._selector.select(_WATCH_INTERVAL if self._fsm.starting() else None):
                    self._do(key.data())
                self._watch_machines()
        finally:
            for machine in self._machines.values():
                machine.end()
        return self._stop_reason

    def _watch_machines(self) -> None:
        """Look for machines that hang while they start."""
        now = time.monotonic()
        waiting = [name for name in self._fsm.starting() if name in self._machines]
        self._do(self._fsm.on_timer(now, {name: self._machines[name].silent(now) for name in waiting}))

    def _accept_request(self, control: socket.socket) -> list[Action]:
        """Read and handle one request; confirm it when its machines are started and their states written."""
        connection, _ = control.accept()
        with connection, contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            connection.settimeout(_REQUEST_TIMEOUT)
            request = json.loads(connection.recv(_CHUNK))
            now, resume = time.monotonic(), bool(request.get("resume"))
            if "start" in request:
                self._do(self._fsm.power_on(request["start"], now, resume=resume))
            else:
                self._do(self._fsm.resume(now))
            connection.sendall(b"done\n")
        return []

    def _watch_lab(self, owner: int | None) -> None:
        """Register the events that may end the lab: signals, the pipe from `up`, the owner's end."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        awake, wake = socket.socketpair()
        for end in (awake, wake):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        self._wakeup = wake  # stays open for set_wakeup_fd
        self._selector.register(
            awake, selectors.EVENT_READ, lambda: self._fsm.on_lab_event(LabEvent.STOP_REQUESTED)
        )
        self._selector.register(0, selectors.EVENT_READ, self._read_pipe)
        control = _listen(_CONTROL)
        self._selector.register(control, selectors.EVENT_READ, lambda: self._accept_request(control))
        if owner is not None:
            try:
                descriptor = os.pidfd_open(owner)
            except ProcessLookupError:
                self._stop_reason = LabEvent.OWNER_EXITED.value
                return
            self._selector.register(
                descriptor, selectors.EVENT_READ, lambda: self._fsm.on_lab_event(LabEvent.OWNER_EXITED)
            )

    def _read_pipe(self) -> list[Action]:
        """Read the pipe from `up`."""
        data = os.read(0, _CHUNK)
        if data == COMMIT:
            self._detach()
            return self._fsm.on_lab_event(LabEvent.COMMITTED)
        self._selector.unregister(0)
        return self._fsm.on_lab_event(LabEvent.UP_EXITED)

    def _detach(self) -> None:
        """Close the pipes to `up`, which may exit now."""
        self._selector.unregister(0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StartMachine(machine, resume):
                    self._start(machine, resume=resume)
                case SendSettings(machine):
                    settings = json.loads(Path(settings_file(machine)).read_text())
                    seed = secrets.token_hex(32)  # a new one for each resume of the same machine
                    self._machines[machine].write({**settings, "seed": seed, "time": time.time()})
                case Notify(event, facts):
                    with contextlib.suppress(OSError):
                        os.write(1, json.dumps({"event": event, **facts}).encode() + b"\n")
                case StopLab(reason):
                    self._stop_reason = self._stop_reason or reason
        self._write_states()

    def _start(self, name: str, *, resume: bool) -> None:
        if old := self._machines.pop(name, None):
            self._selector.unregister(old.console)
            old.end()
        plan = next(machine for machine in _plan()["machines"] if machine["name"] == name)
        machine = _Machine(plan, resume=resume)
        self._machines[name] = machine
        self._selector.register(machine.console, selectors.EVENT_READ, lambda: self._console(machine))

    def _console(self, machine: _Machine) -> list[Action]:
        if self._machines.get(machine.name) is not machine:  # replaced after the selector returned its event
            return []
        lines = machine.read()
        now = time.monotonic()
        if lines is None:
            self._selector.unregister(machine.console)
            del self._machines[machine.name]
            machine.end()
            return self._fsm.on_exit(machine.name, machine.stderr_tail(), now)
        return [action for line in lines for action in self._fsm.on_console_line(machine.name, line, now)]

    def _write_states(self) -> None:
        text = json.dumps({name: asdict(state) for name, state in self._fsm.states.items()})
        if text != self._written:
            self._written = text
            replace_file(Path(STATES), text)


def _plan() -> dict[str, Any]:
    """Read the plan. After the lab is up it contains the forwarded ports of the machines."""
    plan: dict[str, Any] = json.loads(Path(PLAN).read_text())
    return plan


def _listen(name: str) -> socket.socket:
    Path(name).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(name)
    listening.listen()
    return listening


def send_request(directory: Path, request: str) -> None:
    """Send ``request`` to the supervisor of the lab in ``directory`` and wait for its confirmation."""
    try:
        with connect_unix(directory / _CONTROL, _REQUEST_TIMEOUT) as connection:
            connection.sendall(request.encode())
            response = connection.recv(_CHUNK)
    except OSError as error:
        raise LabError(f"lab {directory.name}: no response from its supervisor: {error}") from error
    if not response:
        raise LabError(f"lab {directory.name}: its supervisor rejected {request}")


def main() -> int:
    """Fork into the background, run the lab, remove its directory."""
    directory = Path(sys.argv[1])
    os.chdir(directory)
    if os.fork():  # `up` waits for this process; init reaps the supervisor
        os._exit(0)
    Path(LOCK).write_text(f"{os.getpid()}\n")  # the flock was inherited, on an open descriptor
    try:
        reason = LabSupervisor().run()
    finally:
        removed = directory.with_name(f"{_REMOVED}{directory.name}-{os.getpid()}")
        with contextlib.suppress(OSError):
            directory.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)
    print(reason, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
