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

from attach_kit import WatchedHost, connect

from storagetest.lab import Lab


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
