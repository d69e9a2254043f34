"""The keeper: the small process that a lab lives and dies with.

``python -m storagetest.lab.keeper DIRECTORY`` starts the machines as its children, reads their consoles, and
ends them. What lives must die in every case, so no case depends on anybody's goodwill:

* the machines die with the keeper, also when it is killed: the kernel sends them SIGKILL (see process.py);
* the keeper notices the end of `up` (a pipe) and of the lab's owner (a pidfd) from the kernel, at once;
* the keeper holds the lab's lock (see claims.py), which no crash leaves behind.

It listens on a socket for one request, ``{"start": MACHINE}``: a child has to be started by it.

The directory is renamed before it is removed, so that a new lab of the same name never meets the old one's
remains. What to do when is decided in policy.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from storagetest.errors import LabError
from storagetest.lab.policy import Action, End, Event, Policy, Report, Start
from storagetest.lab.process import bound_to_parent, connected, tail

__all__ = ["COMMIT", "LOCK", "PLAN", "STATES", "Keeper", "ask"]

PLAN, STATES, LOCK = "plan.json", "states.json", "lock"
_CONTROL, _GONE = "control", ".gone-"
COMMIT = b"keep\n"
_CONSOLE_LIMIT = 8 << 20
_CHUNK = 1 << 16
_ANSWER = 10.0


class _Machine:
    """A machine's QEMU and the console that is read from it."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.name: str = plan["name"]
        listening = {name: _listen(name) for name in plan["listen"]}
        descriptors = {name: end.fileno() for name, end in listening.items()}
        self._rest = b""
        with Path(f"qemu-{self.name}.log").open("ab") as complaints:
            self.process = subprocess.Popen(
                [_filled(argument, descriptors) for argument in plan["argv"]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                pass_fds=list(descriptors.values()),
                preexec_fn=bound_to_parent(),  # noqa: PLW1509  # see there
            )
        for end in listening.values():
            end.close()
        assert self.process.stdout is not None
        self.console = self.process.stdout
        self._log = Path(f"console-{self.name}.log").open("ab")  # noqa: SIM115  # closed by end()

    def read(self) -> list[str] | None:
        """Return the lines that have come in, or None when QEMU has ended."""
        data = os.read(self.console.fileno(), _CHUNK)
        if not data:
            return None
        if self._log.tell() < _CONSOLE_LIMIT:
            self._log.write(data)
            self._log.flush()
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_CHUNK:]
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    def complaint(self) -> str:
        return tail(Path(f"qemu-{self.name}.log"), 3) or f"exit status {self.process.returncode}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.console.close()
        self._log.close()


def _filled(argument: str, descriptors: dict[str, int]) -> str:
    for name, descriptor in descriptors.items():
        argument = argument.replace(f"{{fd:{name}}}", str(descriptor))
    return argument


class Keeper:
    """Runs one lab in the current directory until it is to end."""

    def __init__(self) -> None:
        plan = _plan()
        self._policy = Policy([machine["name"] for machine in plan["machines"]], plan["patience"])
        self._machines: dict[str, _Machine] = {}
        self._selector = selectors.DefaultSelector()
        self._ending = ""
        self._written = ""
        self._watch_lab(plan["owner"])

    def run(self) -> str:
        """Keep the lab; return why it ended. No machine runs any more by then."""
        try:
            self._do(self._policy.begin(time.monotonic()))
            while not self._ending:
                tick = self._policy.next_tick()
                timeout = None if tick is None else max(0.0, tick - time.monotonic())
                for key, _ in self._selector.select(timeout):
                    self._do(key.data())
                self._do(self._policy.tick(time.monotonic()))
        finally:
            for machine in self._machines.values():
                machine.end()
        return self._ending

    def _asked(self, control: socket.socket) -> list[Action]:
        """Take one request; who asks has a moment to do so."""
        connection, _ = control.accept()
        with connection:
            connection.settimeout(_ANSWER)
            try:
                machine = json.loads(connection.recv(_CHUNK))["start"]
                actions = self._policy.power_on(machine, time.monotonic())
                connection.sendall(b"done\n")
            except (OSError, ValueError, KeyError, TypeError):
                return []
        return actions

    def _watch_lab(self, owner: int | None) -> None:
        """Have the selector wake up for whatever may end the lab."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        awake, wake = socket.socketpair()
        for end in (awake, wake):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        self._wake = wake  # kept open
        self._selector.register(awake, selectors.EVENT_READ, lambda: self._policy.lab(Event.ASKED))
        self._selector.register(0, selectors.EVENT_READ, self._heard)
        control = _listen(_CONTROL)
        self._selector.register(control, selectors.EVENT_READ, lambda: self._asked(control))
        if owner is not None:
            try:
                descriptor = os.pidfd_open(owner)
            except ProcessLookupError:
                self._ending = Event.OWNER_ENDED.value
                return
            self._selector.register(
                descriptor, selectors.EVENT_READ, lambda: self._policy.lab(Event.OWNER_ENDED)
            )

    def _heard(self) -> list[Action]:
        """Read the pipe from `up`."""
        data = os.read(0, _CHUNK)
        if data == COMMIT:
            self._detach()
            return self._policy.lab(Event.COMMITTED)
        self._selector.unregister(0)
        return self._policy.lab(Event.UP_LEFT)

    def _detach(self) -> None:
        """Let go of `up`'s pipes: it may end now, and need not read any more."""
        self._selector.unregister(0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start(machine):
                    self._start(machine)
                case Report(event, facts):
                    with contextlib.suppress(OSError):
                        os.write(1, json.dumps({"event": event, **facts}).encode() + b"\n")
                case End(why):
                    self._ending = self._ending or why
        self._write_states()

    def _start(self, name: str) -> None:
        if old := self._machines.pop(name, None):
            self._selector.unregister(old.console)
            old.end()
        plan = next(machine for machine in _plan()["machines"] if machine["name"] == name)
        machine = _Machine(plan)
        self._machines[name] = machine
        self._selector.register(machine.console, selectors.EVENT_READ, lambda: self._console(machine))

    def _console(self, machine: _Machine) -> list[Action]:
        if self._machines.get(machine.name) is not machine:  # replaced while its event was on the way
            return []
        lines = machine.read()
        now = time.monotonic()
        if lines is None:
            self._selector.unregister(machine.console)
            del self._machines[machine.name]
            machine.end()
            return self._policy.ended(machine.name, machine.complaint(), now)
        return [action for line in lines for action in self._policy.line(machine.name, line, now)]

    def _write_states(self) -> None:
        text = json.dumps({name: asdict(state) for name, state in self._policy.states.items()})
        if text != self._written:
            self._written = text
            Path(f"{STATES}.new").write_text(text)
            Path(f"{STATES}.new").replace(STATES)


def _plan() -> dict[str, Any]:
    """Read the plan; once the lab is up it holds the ports that the machines were given."""
    found: dict[str, Any] = json.loads(Path(PLAN).read_text())
    return found


def _listen(name: str) -> socket.socket:
    Path(name).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(name)
    listening.listen()
    return listening


def ask(directory: Path, request: str) -> None:
    """Have the keeper of the lab in ``directory`` do ``request``, and wait until it is on its way."""
    try:
        with connected(directory / _CONTROL, _ANSWER) as connection:
            connection.sendall(request.encode())
            answer = connection.recv(_CHUNK)
    except OSError as error:
        raise LabError(f"the keeper of lab {directory.name} does not answer: {error}") from error
    if not answer:
        raise LabError(f"the keeper of lab {directory.name} does not understand {request}")


def main() -> int:
    """Become a process of its own, keep the lab, remove its directory."""
    directory = Path(sys.argv[1])
    os.chdir(directory)
    if os.fork():  # `up` waits for this one; the keeper itself is nobody's child, so nobody's zombie
        os._exit(0)
    Path(LOCK).write_text(f"{os.getpid()}\n")  # the lock itself was inherited, on an open descriptor
    try:
        why = Keeper().run()
    finally:
        gone = directory.with_name(f"{_GONE}{directory.name}-{os.getpid()}")
        with contextlib.suppress(OSError):
            directory.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    print(why, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
