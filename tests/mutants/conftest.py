"""What the mutant tests share is imported by its bare name: the proxy here, the controllers next door."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storagetest.lab import Lab

HERE = Path(__file__).parent
for directory in (HERE, HERE.parent / "controllers"):
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-mutants", action="store_true", help="rewrite the tables of mutants in docs/")


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The lab with LIO: that of ``STORAGETEST_LAB``, or one for this run, next to that of other tests."""
    if name := os.environ.get("STORAGETEST_LAB"):
        running = Lab.find(name)
        assert running is not None, f"lab {name} is not up"
        yield running
        return
    started = Lab.up(f"mutants-{os.getpid()}", clients=0, owner=os.getpid(), progress=lambda _: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGETEST_LAB", started.name)
        yield started
    started.down()
