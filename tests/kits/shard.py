"""A pytest plugin for one of several processes that divide the cases of a suite: ``SHARD=2/8``, from 0.

Each process has targets of its own, so its locks are in its working directory.
"""

import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep each ``count``-th of the selected cases, from this process's own number on."""
    number, count = map(int, os.environ["SHARD"].split("/"))
    kept = items[number::count]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    from storagetest.runner import locks  # not before pytest has rewritten its asserts

    directory = Path.cwd() / "locks"
    directory.mkdir(mode=0o700, exist_ok=True)
    locks.lock_directory = lambda: directory
