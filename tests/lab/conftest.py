"""The lab that every test here runs on: the standing one if there is one, else one for this run.

``STORAGETEST_LAB`` names another lab than ``default``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for attach_kit: importlib mode leaves sys.path alone

from storagetest.hosts import Journal, SshHost, SshSettings
from storagetest.lab import Lab

LEFT = r"""
grep -o ' /run/storagetest/[^ ]*' /proc/self/mountinfo | sed 's/^/mount/'
find /run/storagetest -mindepth 1 -maxdepth 1 2>/dev/null | sed 's/^/file /'
ls -d /sys/class/iscsi_session/* /sys/class/nvme/* 2>/dev/null
ls -d /etc/iscsi/nodes/*/* 2>/dev/null
grep -lszxE '(u?mount|iscsiadm|nvme|mkfs|rm)(\.[a-z0-9]+)?' /proc/[0-9]*/cmdline
exit 0
"""


class WatchedHost(SshHost):
    """A client over SSH that remembers every command line, to look for secrets in them afterwards."""

    def __init__(self, settings: SshSettings) -> None:
        super().__init__(settings)
        self.commands: list[str] = []

    def _execute(self, argv, **more):
        self.commands.append(" ".join(argv))
        return super()._execute(argv, **more)

    def left(self) -> list[str]:
        """What an attach could have left: mounts, files, sessions, records, controllers, journal entries."""
        found = self.run(["bash", "-c", LEFT], deadline=30).stdout.splitlines()
        return found + [f"journal: {getattr(entry, 'what', entry)}" for entry in Journal(self).entries()]


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    name = os.environ.get("STORAGETEST_LAB", "default")
    standing = Lab.find(name)
    if standing is not None:
        yield standing
        return
    started = Lab.up(name, clients=2, owner=os.getpid())
    yield started
    started.down()


def connect(lab: Lab, name: str) -> WatchedHost:
    return WatchedHost(SshSettings(name, name, ssh_config=lab.ssh_config))


@pytest.fixture(scope="session")
def client1(lab: Lab) -> Iterator[WatchedHost]:
    with connect(lab, "client1") as host:
        yield host


@pytest.fixture(scope="session")
def client2(lab: Lab) -> Iterator[WatchedHost]:
    with connect(lab, "client2") as host:
        yield host


@pytest.fixture(scope="session")
def appliance(lab: Lab) -> Iterator[WatchedHost]:
    with connect(lab, "appliance") as host:
        yield host


@pytest.fixture(scope="session")
def secrets(lab: Lab) -> dict[str, str]:
    """The lab's passwords by the names of their files."""
    return {file.name: file.read_text().strip() for file in Path(lab.ssh_config).parent.glob("*-password")}


@pytest.fixture(scope="session")
def clean_client(client1: WatchedHost) -> WatchedHost:
    assert client1.left() == [], "clear it up before these tests can say anything"
    return client1


@pytest.fixture
def client(clean_client: WatchedHost, secrets: dict[str, str]) -> Iterator[WatchedHost]:
    """client1, with nothing left on it before and after, and no secret on any command line."""
    client1 = clean_client
    client1.commands.clear()
    yield client1
    assert client1.left() == []
    shown = [line for line in client1.commands for secret in secrets.values() if secret in line]
    assert shown == []
