"""Two clients of the lab: locks are seen to cross the wire; where they do not, a case is INVALID."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest_run import PytestRun, select_targets

from storagetest.hosts import Host

pytestmark = pytest.mark.lab

CASES = """
from fcntl import F_RDLCK, F_WRLCK
from os import O_CREAT, O_RDWR

import pytest

pytestmark = [pytest.mark.needs("shared", "two_clients"), pytest.mark.case(section="X", level="MUST")]

@pytest.mark.case("TWO-OPEN")
def test_both_have_it_open(client_sessions, crossed_wire):
    a, b = client_sessions
    mine, yours = a.open("f", O_CREAT | O_RDWR), b.open("f", O_RDWR)
    with crossed_wire(a, "lock"):
        a.lock(mine, F_WRLCK, 0, 10)
    assert not b.try_lock(yours, F_WRLCK, 5, 10)

@pytest.mark.case("ONE-TRUSTS")
def test_one_has_it_to_itself(client_sessions, crossed_wire):
    a, b = client_sessions
    a.write_file("f", bytes(100))
    fd = a.open("f")
    a.read(fd, 10)
    with crossed_wire(a, "lock"):
        a.lock(fd, F_RDLCK, 0, 10)

@pytest.mark.case("WRITE-READ")
def test_what_one_wrote_the_other_reads(client_sessions, crossed_wire):
    a, b = client_sessions
    with crossed_wire(a, "write"):
        a.write_file("f", b"x" * 5000)
    with crossed_wire(b, "read"):
        assert b.read_file("f") == b"x" * 5000
    a.kill_worker()
"""

NO_LOCK = """\
  nolock:
    protocol: nfs
    address: 10.77.0.1
    export: /a
    version: "3"
    lock: false
    clients: [client1, client2]

"""


@pytest.fixture
def line(tmp_path: Path, lab) -> PytestRun:
    made = PytestRun(tmp_path, lab.targets_yaml.read_text())
    made.edit("targets:\n", "targets:\n" + NO_LOCK)
    (tmp_path / "test_suite.py").write_text(CASES)
    return made


def agents(client: Host) -> set[str]:
    """The agent's processes there; those of the tests' own connection stay as long as it does."""
    return set(client.run(["pgrep", "-f", "[s]toragetest-agent"], deadline=30, check=False).stdout.split())


def test_case_without_a_request_is_invalid(line: PytestRun, client1, client2) -> None:
    variants = ("nolock", "nfs-v3-nconnect1", "nfs-v4.2-nconnect1", "smb-v3.1.1")
    ours = {client.name: agents(client) for client in (client1, client2)}
    status, output = line.run(*select_targets(*variants), timeout=1200)
    lines = (line.directory / "cases.jsonl").read_text().splitlines()
    seen = {(one["id"], one["nodeid"].partition("[")[2][:-1]): one for one in map(json.loads, lines)}
    outcomes = {key: one["outcome"] for key, one in seen.items()}
    assert outcomes == {
        # Its locks stay on the client, so the case proves nothing about the server's.
        ("TWO-OPEN", "nolock"): "invalid",
        ("ONE-TRUSTS", "nolock"): "invalid",
        ("WRITE-READ", "nolock"): "passed",
        # Version 3's locks use a protocol of their own without counters: they are captured.
        ("TWO-OPEN", "nfs-v3-nconnect1"): "passed",
        ("ONE-TRUSTS", "nfs-v3-nconnect1"): "passed",
        ("WRITE-READ", "nfs-v3-nconnect1"): "passed",
        # A client with a delegation or a lease keeps its locks in its own tables.
        ("TWO-OPEN", "nfs-v4.2-nconnect1"): "passed",
        ("ONE-TRUSTS", "nfs-v4.2-nconnect1"): "invalid",
        ("WRITE-READ", "nfs-v4.2-nconnect1"): "passed",
        ("TWO-OPEN", "smb-v3.1.1"): "passed",
        ("ONE-TRUSTS", "smb-v3.1.1"): "invalid",
        ("WRITE-READ", "smb-v3.1.1"): "passed",
    }, output
    assert "no lock request was sent" in seen["TWO-OPEN", "nolock"]["message"]
    assert "by a capture of the NLM's calls" in seen["TWO-OPEN", "nolock"]["message"]
    assert status == pytest.ExitCode.TESTS_FAILED, "INVALID is never green"
    for client in (client1, client2):
        assert client.left() == []
        assert agents(client) <= ours[client.name]
