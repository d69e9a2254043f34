"""Life cycle of a lab on real machines: it serves, and its end leaves no process, directory or socket."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storagetest.errors import LabError
from storagetest.lab import Lab, image, roles
from storagetest.lab.paths import package_root, state_root
from storagetest.polling import wait_until

pytestmark = pytest.mark.lab

SOON = 60.0
BOOT = 180.0
ENVIRONMENT = {"PYTHONPATH": str(package_root()), "PYTHONUNBUFFERED": "1"}


@pytest.fixture(autouse=True, scope="module")
def built() -> None:
    image.build(roles.load("kernel").recipe)


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path) -> Iterator[Path]:
    """A state directory per test, longer than the limit of a socket's path; empty after the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("x" * 100)))
    yield state_root()
    for name in Lab.names():
        Lab.end(name)
    assert nothing_left()


def processes() -> dict[int, str]:
    """The supervisors and machines of this test, by their working directory, even if that is removed."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            directory = str((process / "cwd").readlink())
            if directory.startswith(str(state_root())):
                found[int(process.name)] = (process / "comm").read_text().strip()
        except OSError:
            pass
    return found


def nothing_left() -> bool:
    left = [path.name for path in state_root().iterdir()] if state_root().exists() else []
    return not processes() and left in ([], [".lock"])


def ssh(lab: Lab, host: str, *argv: str) -> str:
    done = subprocess.run(lab.ssh_argv(host, argv), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(*argv: str, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *argv],
        env={**os.environ, **ENVIRONMENT, **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_up_serve_reuse_break_down():
    lab = Lab.up("one", clients=1, progress=lambda _: None)
    assert [host.name for host in lab.hosts] == ["appliance", "client1"]
    assert len(processes()) == 3

    ssh(lab, "client1", "mount", "-t", "nfs", "-o", "vers=4.2", "10.77.0.1:/a", "/mnt")
    ssh(lab, "client1", "sh", "-c", "echo data >/mnt/file && sync")
    assert ssh(lab, "appliance", "cat", "/srv/nfs/a/file") == "data\n"
    ssh(lab, "client1", "umount", "/mnt")

    messages: list[str] = []
    assert Lab.up("one", clients=1, progress=messages.append).status() == lab.status()
    assert messages == ["lab one is up already: kernel appliance, 1 client"]
    with pytest.raises(LabError, match=r"is up with other parameters \(kernel appliance, 1 client\)"):
        Lab.up("one", clients=2)

    def reachable() -> bool:
        probe = ["timeout", "2", "bash", "-c", "</dev/tcp/10.77.0.1/2049"]
        done = subprocess.run(lab.ssh_argv("client1", probe), capture_output=True, timeout=60, check=False)
        return done.returncode == 0

    appliance = lab.vm("appliance")
    for inject, repair in (
        (appliance.pause, appliance.resume),
        (lambda: appliance.set_link("data", up=False), lambda: appliance.set_link("data", up=True)),
    ):
        inject()
        assert not reachable()
        repair()
        wait_until(reachable, SOON, "the appliance to answer again")

    with pytest.raises(LabError, match="power_on failed"):
        appliance.power_on()
    appliance.reset()
    assert lab.status().host("appliance").boots == 2
    wait_until(reachable, SOON, "the appliance to answer after its reset")
    ssh(lab, "client1", "mount", "-t", "nfs", "-o", "vers=4.2", "10.77.0.1:/a", "/mnt")
    assert ssh(lab, "client1", "ls", "/mnt") == ""

    lab.vm("client1").kill()
    assert lab.status().host("client1").state == "ended"
    with pytest.raises(LabError, match="client1 has stopped"):
        Lab.up("one", clients=1)
    lab.down()
    assert nothing_left()
    with pytest.raises(LabError, match="lab one is not up"):
        lab.status()


def test_a_killed_owner_ends_its_lab():
    program = (
        "import os, time; from storagetest.lab import Lab\n"
        "print(Lab.up('own', clients=0, appliance='empty', owner=os.getpid()).name); time.sleep(600)"
    )
    with start("-c", program) as owner:
        try:
            assert owner.stdout is not None
            messages = list(itertools.takewhile(lambda line: line != "own\n", owner.stdout))
            lab = Lab.find("own")
            assert lab is not None, messages
            assert lab.status().owner == owner.pid
        finally:
            owner.kill()
    wait_until(nothing_left, SOON, "nothing to be left of the owner's lab")


def test_a_killed_supervisor_ends_the_machines_and_the_next_lab_cleans_up():
    lab = Lab.up("kept", clients=1, appliance="empty", progress=lambda _: None)
    assert len(processes()) == 3
    os.kill(lab.status().supervisor, signal.SIGKILL)
    wait_until(lambda: not processes(), SOON, "the machines to end")
    assert Lab.find("kept") is None
    assert nothing_left()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name
)
def test_an_up_that_is_interrupted_leaves_nothing(number):
    with start("-m", "storagetest.lab", "up", "--name", "cut") as up:
        wait_until(lambda: len(processes()) >= 4, BOOT, "the machines to be started")
        assert Lab.find("cut") is None
        up.send_signal(number)
        messages = up.communicate(timeout=SOON)[0]
    assert up.returncode in {130, -number}
    assert "Traceback" not in messages
    wait_until(nothing_left, SOON, "nothing to be left")


@pytest.fixture
def fake_qemu(tmp_path, monkeypatch) -> Callable[[str], None]:
    """Install a QEMU wrapper first on the PATH that runs the given shell text."""

    def install(text: str) -> None:
        real = shutil.which("qemu-system-x86_64")
        wrapper = tmp_path / "bin/qemu-system-x86_64"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\ncase "$*" in\n{text};;\nesac\nexec {real} "$@"\n')
        wrapper.chmod(0o755)
        monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")

    return install


def test_a_machine_that_hangs_at_its_start_is_started_once_more(tmp_path, fake_qemu):
    hung = tmp_path / "hung"
    fake_qemu(f"*'-name client1 '*) [ -e {hung} ] || {{ touch {hung}; exec sleep 600; }}")
    messages: list[str] = []
    lab = Lab.up("again", clients=1, appliance="empty", progress=messages.append, boot_timeout=15.0)
    assert "boot: client1 again (no milestone within 15 s after 'power on')" in messages
    assert ssh(lab, "client1", "hostname") == "client1\n"
    states = json.loads((state_root() / "again/states.json").read_text())
    assert states["client1"]["attempts"] == 1
    ssh(lab, "client1", "bash", "-c", "</dev/tcp/10.77.0.1/22")


def test_a_machine_that_does_not_start_is_one_error_and_leaves_nothing(fake_qemu):
    fake_qemu("*'-name appliance '*) echo 'no such machine' >&2; exit 1")
    with pytest.raises(LabError, match="appliance did not start: QEMU exited: no such machine"):
        Lab.up("never", clients=0, progress=lambda _: None)
    assert nothing_left()
