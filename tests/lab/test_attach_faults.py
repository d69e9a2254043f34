"""Faults from outside, of all protocols at once: a paused appliance, a killed test."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attach_helpers import attach, connect, iscsi, nfs, nvme, smb

from storagetest.errors import HostError, StoragetestError, TargetDead
from storagetest.hosts import UndoStatus, clean
from storagetest.protocols.base import AttachmentKind, protocols

pytestmark = [pytest.mark.lab, pytest.mark.slow]
DEADLINE = 20.0


def everything(secrets: dict[str, str], **more: object) -> dict[str, tuple[str, Any]]:
    """One target of each way to hold something on a client."""
    return {
        "nfs 3": ("nfs", nfs(version="3", **more)),
        "nfs 4.2": ("nfs", nfs(export="/b", **more)),
        "smb": ("smb", smb(secrets, **more)),
        "iscsi": ("iscsi", iscsi(**more)),
        "iscsi ext4": ("iscsi", iscsi("lab-chap", 0, 3, chap=account(secrets), filesystem="ext4", **more)),
        "nvme": ("nvme-tcp", nvme(**more)),
        "nvme ext4": ("nvme-tcp", nvme("lab1", 2, 2, filesystem="ext4", **more)),
    }


def account(secrets: dict[str, str]) -> dict[str, str]:
    return {"username": "storagetest", "password": secrets["chap-password"]}


@pytest.fixture(autouse=True, scope="module")
def sweep(appliance) -> Iterator[None]:
    """Remove directories of storagetest that stay on the target after a forced release."""
    yield
    appliance.run(["sh", "-c", "rm -rf /srv/nfs/*/storagetest-* /srv/smb/*/storagetest-*"], deadline=60)


@contextmanager
def paused_appliance(lab: Any) -> Iterator[None]:
    machine = lab.vm("appliance")
    machine.pause()
    try:
        yield
    finally:
        machine.resume()


def in_parallel(jobs: dict[str, Any]) -> dict[str, Any]:
    """Call each job in a thread; return its result, or the exception that it raised."""

    def outcome(job: Any) -> Any:
        try:
            return job()
        except StoragetestError as error:
            return error

    with ThreadPoolExecutor(len(jobs)) as pool:
        return dict(zip(jobs, pool.map(outcome, jobs.values()), strict=True))


def test_appliance_paused_before_the_attach(lab, client, secrets) -> None:
    def job(protocol: str, given: Any) -> Any:
        def attempt() -> str:
            with attach(client, protocol, given):
                return "attached"

        return attempt

    started = time.monotonic()
    with paused_appliance(lab):
        targets = everything(secrets, deadline=DEADLINE)
        found = in_parallel({name: job(*one) for name, one in targets.items()})
    assert time.monotonic() - started < DEADLINE + 10
    for name, error in found.items():
        assert type(error) is TargetDead, (name, error)
        assert "client1 cannot connect to 10.77.0.1 port" in str(error)


@pytest.mark.parametrize("protocol", ["nfs", "smb", "iscsi", "nvme-tcp"])
def test_probe_accepts_a_target_that_responds(client, secrets, protocol) -> None:
    given = next(given for name, given in everything(secrets).values() if name == protocol)
    protocols.get(protocol)().probe(client, given)


ACQUIRING = {
    "nfs": "storagetest-mount",
    "smb": "storagetest-mount",
    "iscsi": "--login",
    "nvme-tcp": "connect",
}
"""A word of the command that acquires, by protocol."""


def test_appliance_paused_during_an_attach(lab, client, secrets) -> None:
    """The portal responds, then the machine is paused: the client's kernel is in a mount or a login."""
    machine = lab.vm("appliance")
    targets = everything(secrets, deadline=DEADLINE)
    chosen = {name: targets[name] for name in ("nfs 3", "nfs 4.2", "smb", "iscsi", "nvme")}
    barrier = threading.Barrier(len(chosen), action=machine.pause)

    def job(protocol: str, given: Any) -> Any:
        def wait_for_other_attaches(argv: Any) -> None:
            if ACQUIRING[protocol] in argv:
                barrier.wait(timeout=60)

        def attempt() -> str:
            with connect(lab, "client1") as host:
                host.before = wait_for_other_attaches
                with attach(host, protocol, given):
                    return "attached"

        return attempt

    try:
        found = in_parallel({name: job(*one) for name, one in chosen.items()})
    finally:
        machine.resume()
    for name, error in found.items():
        assert type(error) is TargetDead, (name, error)


def test_appliance_paused_in_use(lab, client, secrets) -> None:
    """A write hangs until its deadline. A forced release follows, and the error is TargetDead."""
    all_targets = everything(secrets, deadline=DEADLINE)
    # One of each type of attachment, because the client has one emulated processor.
    targets = {name: all_targets[name] for name in ("nfs 4.2", "smb", "iscsi ext4", "nvme")}

    def use(attachment: Any) -> None:
        directory = attachment.kind is AttachmentKind.FILESYSTEM
        path = f"{attachment.path}/file" if directory else attachment.path
        client.run(["dd", "if=/dev/zero", f"of={path}", "bs=64k", "count=16", "oflag=direct"], deadline=4)

    def finish(stack: ExitStack, attachment: Any) -> Any:
        def attempt() -> str:
            with pytest.raises(HostError):
                use(attachment)
            started = time.monotonic()
            try:
                stack.__exit__(*[None] * 3)
            finally:
                taken[attachment.path] = time.monotonic() - started
            return "released"

        return attempt

    taken: dict[str, float] = {}
    jobs = {}
    with ExitStack() as unwinding:
        for name, (protocol, given) in targets.items():
            stack = unwinding.enter_context(ExitStack())
            jobs[name] = finish(stack, stack.enter_context(attach(client, protocol, given)))
        with paused_appliance(lab):
            found = in_parallel(jobs)
            left = client.left()
    for name, error in found.items():
        assert type(error) is TargetDead, (name, error, taken)
    assert left == []
    assert max(taken.values()) < 3 * DEADLINE, taken


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from contextlib import ExitStack
from attach_helpers import attach
from test_attach_faults import everything
from storagetest.hosts import SshHost, SshSettings
place = Path(sys.argv[2])
secrets = {file.name: file.read_text().strip() for file in place.parent.glob("*-password")}
with SshHost(SshSettings("client1", "client1", ssh_config=place)) as client, ExitStack() as stack:
    for protocol, given in everything(secrets).values():
        attachment = stack.enter_context(attach(client, protocol, given))
        print(attachment.path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_sigkill_is_undone_by_clean(lab, client, secrets) -> None:
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(lab.ssh_config)]
    killed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    count = len(everything(secrets))
    assert len(killed.stdout.splitlines()) == count
    left = client.left()
    assert len([line for line in left if line.startswith("journal")]) >= count
    shown = [line for line in left for secret in secrets.values() if secret in line]
    assert shown == []
    outcomes = clean(client)
    assert {outcome.result for outcome in outcomes} == {UndoStatus.UNDONE}, outcomes
    assert client.left() == []
