"""Life cycle of a lab on real machines: it serves, and its end leaves no process, directory or socket."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from storagetest.config.loader import load
from storagetest.errors import ConfigError, LabError
from storagetest.lab import Lab, image, roles
from storagetest.lab.paths import cache_root, package_root, state_root
from storagetest.polling import wait_until

pytestmark = pytest.mark.lab

SOON = 180.0
BOOT = 600.0
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


def resumed(name: str, **parameters: Any) -> Lab:
    """Start a lab from a snapshot, which is made if the cache does not have it."""
    lab = Lab.up(name, progress=lambda _: None, **parameters)
    assert lab.status().start == "resumed"
    return lab


def test_up_serve_reuse_break_down():
    lab = resumed("one", clients=1)
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


def test_two_labs_of_one_snapshot_share_no_key_no_password_no_random_number_and_no_file():
    labs = [resumed(name, clients=0) for name in ("one", "two")]
    assert len({lab.status().snapshot for lab in labs}) == 1
    for secret in ("id_ed25519", "host-key-appliance", "smb-password", "chap-password"):
        assert len({(state_root() / lab.name / secret).read_text() for lab in labs}) == 2
    for lab in labs:
        files = [state_root() / lab.name / file for file in ("host-key-appliance", "smb-password")]
        in_machine = ssh(lab, "appliance", "cat", "/run/lab/host_key", "/run/lab/secrets/smb-password")
        assert in_machine == "".join(file.read_text() for file in files)
    assert len({ssh(lab, "appliance", "sh", "-c", "head -c 16 /dev/urandom | base64") for lab in labs}) == 2
    ssh(labs[0], "appliance", "touch", "/srv/nfs/a/file")
    assert ssh(labs[1], "appliance", "ls", "/srv/nfs/a") == ""


def test_a_lab_without_clients_has_no_targets_and_its_file_has_the_reason():
    """The sentence for the user is that of the targets alone, and its line has what to do."""
    written = resumed("one", clients=0).targets_yaml
    with pytest.raises(ConfigError) as refused:
        load(written)
    (problem,) = str(refused.value).splitlines()
    place, sentence = problem.split(": ", 1)
    assert sentence == "targets is empty; name at least one target"
    line = written.read_text().splitlines()[int(place.split(":")[1]) - 1]
    assert line.endswith("storagetest lab up --clients 1")


def test_the_clock_of_a_resumed_machine_is_the_hosts():
    lab = resumed("one", clients=0)
    before = time.time()
    machine = float(ssh(lab, "appliance", "date", "+%s.%N"))
    assert before - 2 < machine < time.time() + 2


def test_a_machine_is_restored_from_the_snapshot():
    lab = resumed("one", clients=1)
    mount = "mount -t nfs -o vers=4.2 10.77.0.1:/a /mnt"
    ssh(lab, "client1", "sh", "-c", f"{mount} && touch /mnt/file && umount /mnt")
    assert ssh(lab, "appliance", "ls", "/srv/nfs/a") == "file\n"
    lab.vm("appliance").restore()
    assert ssh(lab, "appliance", "ls", "/srv/nfs/a") == ""
    assert ssh(lab, "client1", "sh", "-c", f"{mount} && ls /mnt") == ""
    random = "head -c 16 /dev/urandom | base64"
    numbers = [ssh(lab, "client1", "sh", "-c", random)]
    for _ in range(2):
        lab.vm("client1").restore()
        assert "/mnt" not in ssh(lab, "client1", "cat", "/proc/mounts")
        numbers.append(ssh(lab, "client1", "sh", "-c", random))
    assert len(set(numbers)) == 3


@pytest.fixture
def own_cache(monkeypatch, tmp_path) -> Path:
    """A cache with the images of the real one and no snapshots."""
    own = tmp_path / "cache/storagetest/lab"
    own.mkdir(parents=True)
    for name in ("images", "kvm.json"):
        (own / name).symlink_to(cache_root() / name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return own


def test_machines_that_do_not_resume_are_booted_and_their_snapshot_is_removed(own_cache):
    lab = resumed("one", clients=0, appliance="empty")
    snapshot = own_cache / "snapshots" / lab.status().snapshot
    lab.down()
    state = snapshot / "state-appliance"
    state.write_bytes(bytes(state.stat().st_size))
    messages: list[str] = []
    lab = Lab.up("one", clients=0, appliance="empty", progress=messages.append)
    assert lab.status().start == "booted"
    assert ssh(lab, "appliance", "hostname") == "appliance\n"
    (again,) = [message for message in messages if message.startswith("resume:")]
    assert again.startswith("resume: appliance failed (")
    assert again.endswith("); booting")
    assert not snapshot.exists()
    with pytest.raises(LabError, match="was booted without a snapshot"):
        lab.vm("appliance").restore()


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
    with start("-m", "storagetest.lab", "up", "--cold", "--name", "cut") as up:
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


@pytest.mark.slow
def test_a_machine_that_hangs_at_its_start_is_started_once_more(tmp_path, fake_qemu):
    hung = tmp_path / "hung"
    fake_qemu(f"*'-name client1 '*) [ -e {hung} ] || {{ touch {hung}; exec sleep 600; }}")
    messages: list[str] = []
    lab = Lab.up(
        "again", clients=1, appliance="empty", progress=messages.append, boot_timeout=15.0, cold=True
    )
    reason = "its console was silent for 15 s of its own time after 'power on'"
    assert f"boot: client1 again ({reason})" in messages
    assert ssh(lab, "client1", "hostname") == "client1\n"
    states = json.loads((state_root() / "again/states.json").read_text())
    assert states["client1"]["attempts"] == 1
    ssh(lab, "client1", "bash", "-c", "</dev/tcp/10.77.0.1/22")


@pytest.mark.slow
def test_a_machine_that_gets_no_processor_is_waited_for():
    """It is stopped for longer than the boot timeout, and is silent on the clock alone."""
    messages: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(
            Lab.up, "slow", clients=0, appliance="empty", progress=messages.append, boot_timeout=15, cold=True
        )
        wait_until(lambda: "qemu-system-x86" in processes().values(), BOOT, "the machine to be started")
        (machine,) = (pid for pid, name in processes().items() if name == "qemu-system-x86")
        os.kill(machine, signal.SIGSTOP)
        time.sleep(20)
        os.kill(machine, signal.SIGCONT)
        lab = starting.result(BOOT)
    assert not [message for message in messages if "again" in message]
    assert json.loads((state_root() / "slow/states.json").read_text())["appliance"]["attempts"] == 0
    assert ssh(lab, "appliance", "hostname") == "appliance\n"


def test_a_machine_that_does_not_start_is_one_error_and_leaves_nothing(fake_qemu):
    fake_qemu("*'-name appliance '*) echo 'no such machine' >&2; exit 1")
    with pytest.raises(
        LabError, match=r"appliance did not start: QEMU exited: no such machine(\n.*)*What to do: "
    ):
        Lab.up("never", clients=0, progress=lambda _: None, cold=True)
    assert nothing_left()
