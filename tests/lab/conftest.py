"""The lab that the tests use: the running one, or one for this run.

The environment variable ``STORAGETEST_LAB`` is the lab's name (default: ``default``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for attach_helpers: importlib mode leaves sys.path alone

from attach_helpers import RecordingHost, connect

from storagetest.lab import Lab
from storagetest.workloads._agent.fork_server import ForkServer


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    name = os.environ.get("STORAGETEST_LAB", "default")
    running = Lab.find(name)
    if running is not None:
        yield running
        return
    started = Lab.up(name, clients=2, owner=os.getpid())
    yield started
    started.down()


@pytest.fixture(scope="session")
def client1(lab: Lab) -> Iterator[RecordingHost]:
    """Its fork server runs, as it does after the first load: a command costs a fifth of that over SSH."""
    with connect(lab, "client1") as host:
        assert host.resource(ForkServer).available()
        yield host


@pytest.fixture(scope="session")
def client2(lab: Lab) -> Iterator[RecordingHost]:
    with connect(lab, "client2") as host:
        yield host


@pytest.fixture(scope="session")
def appliance(lab: Lab) -> Iterator[RecordingHost]:
    with connect(lab, "appliance") as host:
        yield host


@pytest.fixture(scope="session")
def secrets(lab: Lab) -> dict[str, str]:
    """The lab's passwords by the names of their files."""
    return {file.name: file.read_text().strip() for file in Path(lab.ssh_config).parent.glob("*-password")}


@pytest.fixture(scope="session")
def clean_client(client1: RecordingHost) -> RecordingHost:
    assert client1.left() == [], "run `storagetest clean` first"
    return client1


@pytest.fixture
def client(clean_client: RecordingHost, secrets: dict[str, str]) -> Iterator[RecordingHost]:
    """client1; nothing is attached before and after the test, and no command line contains a secret."""
    client1 = clean_client
    client1.commands.clear()
    yield client1
    assert client1.left() == []
    leaked = [line for line in client1.commands for secret in secrets.values() if secret in line]
    assert leaked == []
