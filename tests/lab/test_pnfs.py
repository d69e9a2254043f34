"""pNFS in a lab of the role ``pnfs``: data go round the server; if they do not, an attach or a case fails.

The tests of the suite are marked slow: they run it on a sound lab and on three broken ones.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attach_helpers import RecordingHost, attach, connect, nfs
from pytest_run import PytestRun, select_targets

from storagetest.lab import Lab
from storagetest.lab.services import pnfs
from storagetest.protocols._nfs_layout import layout_use

pytestmark = pytest.mark.lab

SUITE = Path(__file__).parents[2] / "suites" / "conformance" / "shared" / "test_layouts.py"
SIZE = 1 << 20
WRITE, READ, LAYOUTGET = 38, 25, 50  # operation numbers, RFC 8881 16.2

WRITE_AND_READ = """
dd if=/dev/urandom of=/tmp/data bs=64k count=16
dd if=/tmp/data of="$1" bs=64k oflag=direct conv=fsync
dd if="$1" bs=64k iflag=direct | cmp - /tmp/data
sha256sum </tmp/data
"""

BREAK = """
import subprocess

COMMANDS = {commands!r}

def pytest_runtest_call(item):
    # After the attach, which would notice.
    for command in COMMANDS:
        subprocess.run(command, check=True, timeout=120, stdin=subprocess.DEVNULL)
"""


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    name = os.environ.get("STORAGETEST_LAB", "default")
    running = Lab.find(name)
    if running is not None and running.status().shape.appliance == "pnfs":
        yield running
        return
    started = Lab.up(f"pnfs-{os.getpid()}", clients=2, appliance="pnfs", owner=os.getpid())
    yield started
    started.down()


@pytest.fixture(scope="module")
def clients(lab: Lab) -> Iterator[list[RecordingHost]]:
    with connect(lab, "client1") as one, connect(lab, "client2") as two:
        yield [one, two]


@pytest.fixture(scope="module")
def server(lab: Lab) -> Iterator[RecordingHost]:
    with connect(lab, "appliance") as host:
        yield host


def served(server: RecordingHost, *numbers: int) -> list[int]:
    """Return how many of these operations the server has executed (/proc/net/rpc/nfsd, ``proc4ops``)."""
    text = server.run(["grep", "proc4ops", "/proc/net/rpc/nfsd"], deadline=60).stdout.split()
    return [int(text[2 + number]) for number in numbers]


def sectors(client: RecordingHost) -> tuple[int, int]:
    """Return the sectors that the client has read from and written to the shared disk itself."""
    stat = client.run(["cat", "/sys/block/dm-0/stat"], deadline=60).stdout.split()
    return int(stat[2]), int(stat[6])


def test_data_go_round_the_server_by_the_counters_of_both_sides(clients, server) -> None:
    client = clients[0]
    with attach(client, "nfs", nfs(export="/p", layout="block")) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["layout"] == "block"
        before, disk = served(server, WRITE, READ, LAYOUTGET), sectors(client)
        script = (
            'dd if=/dev/urandom of=/tmp/data bs=64k count=16 && dd if=/tmp/data of="$1" bs=64k oflag=direct'
        )
        script += ' conv=fsync && dd if="$1" bs=64k iflag=direct | cmp - /tmp/data && sha256sum </tmp/data'
        done = client.run(["sh", "-euc", script, "data", f"{attachment.path}/data"], deadline=120)
        after, used = served(server, WRITE, READ, LAYOUTGET), sectors(client)
        assert after[:2] == before[:2], "the server has executed WRITE or READ"
        assert after[2] > before[2]
        assert used[0] - disk[0] >= SIZE // 512
        assert used[1] - disk[1] >= SIZE // 512
        text = client.run(["cat", "/proc/self/mountstats"], deadline=60).stdout
        use = layout_use(text, attachment.root)
        assert use is not None
        assert use.calls("WRITE", "READ", "READ_PLUS") == 0
        assert use.layout_writes > 16, "the probe's and the data's"
        own = attachment.path.rpartition("/")[2]
        found = server.run(["sha256sum", f"/srv/nfs/p/{own}/data"], deadline=60)
        assert found.stdout.split()[0] == done.stdout.split()[0], "the server's own file system has the data"


def test_what_was_asked_for_and_is_not_used_is_a_mismatch(clients) -> None:
    client = clients[0]
    client.run(pnfs.REMOVE_DEVICE, deadline=60)
    try:
        with attach(client, "nfs", nfs(export="/p", layout="block", version="4.1")) as attachment:
            (mismatch,) = attachment.mismatches
            assert "got block, but the first data went through the server: 4 WRITE" in str(mismatch)
    finally:
        client.run(pnfs.RETURN_DEVICE, deadline=60)


def table(lab: Lab, client: str, target: str) -> list[str]:
    """Return the command that gives a client's shared disk a device-mapper target of this kind."""
    return lab.ssh_argv(client, [word.replace("error", target) for word in pnfs.REMOVE_DEVICE])


def restore(lab: Lab) -> None:
    for client in ("client1", "client2"):
        argv = lab.ssh_argv(client, pnfs.RETURN_DEVICE)
        subprocess.run(argv, check=True, timeout=120, stdin=subprocess.DEVNULL)


@contextmanager
def broken(lab: Lab, directory: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch):
    """Make the module ``breaking`` run the commands before each case; afterwards the disks are sound."""
    (directory / "breaking.py").write_text(BREAK.format(commands=commands))
    monkeypatch.setenv("PYTHONPATH", str(directory))
    try:
        yield
    finally:
        monkeypatch.delenv("PYTHONPATH")
        restore(lab)


def outcomes(directory: Path, lab: Lab, *arguments: str, no_removal: bool = False) -> dict[str, str]:
    """Run the suite; return each case's outcome by the last two digits of its id."""
    line = PytestRun(directory, lab.targets_yaml.read_text())
    if no_removal:
        line.edit("remove_device: [env, ", 'remove_device: ["true", ')
    line.run(
        *select_targets("nfs-pnfs-v4.2"),
        f"--rootdir={directory}",
        "--st-judge-all",
        *arguments,
        str(SUITE),
        timeout=1200,
    )
    records = [json.loads(text) for text in (directory / "cases.jsonl").read_text().splitlines()]
    return {record["id"][-2:]: record["outcome"] for record in records}


NUMBERS = [f"{number:02}" for number in range(1, 10)]


@pytest.mark.slow
def test_the_cases_pass(lab, clients, tmp_path) -> None:
    found = outcomes(tmp_path, lab)
    assert found == dict.fromkeys(NUMBERS[:8], "passed") | {"09": "observed"}
    for client in clients:
        assert client.left() == []


@pytest.mark.slow
def test_cases_about_the_route_fail_if_the_disk_of_both_clients_fails(lab, tmp_path, monkeypatch) -> None:
    """The data are right, and go through the server."""
    fails = [table(lab, client, "error") for client in ("client1", "client2")]
    with broken(lab, tmp_path, fails, monkeypatch):
        found = outcomes(tmp_path, lab, "-p", "breaking", "-k", "not device")
    assert found == dict.fromkeys(NUMBERS[:6], "failed")


@pytest.mark.slow
def test_cases_about_the_data_fail_if_the_second_client_has_another_disk(lab, tmp_path, monkeypatch) -> None:
    """What it reads there is zeros, and what it writes there is lost."""
    with broken(lab, tmp_path, [table(lab, "client2", "zero")], monkeypatch):
        found = outcomes(tmp_path, lab, "-p", "breaking")
    assert found == dict.fromkeys(NUMBERS[:8], "failed") | {"09": "observed"}


@pytest.mark.slow
def test_cases_about_the_device_fail_if_it_is_not_taken_away(lab, tmp_path) -> None:
    found = outcomes(tmp_path, lab, "-k", "device", no_removal=True)
    assert found == {"07": "failed", "08": "failed", "09": "observed"}
