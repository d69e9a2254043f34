"""Changelog: the MDT's record of changes, if a consumer is registered."""

from __future__ import annotations

import re

import pytest

from storagetest.agent.testlib import skip
from storagetest.agent.testlib.lfs import lfs, try_lfs
from storagetest.agent.testlib.tmpfiles import make_file

NO_MUTANT = "no file system in user space has layouts, quota or a changelog"

pytestmark = [
    pytest.mark.needs("filesystem", "layouts"),
    pytest.mark.case(
        level="MUST", section="Lustre Operations Manual: Lustre Changelogs", no_mutant_reason=NO_MUTANT
    ),
]
MARK = "storagetest-changelog"


def records(directory, name):
    """Return the changelog's lines about ``name``; skip the case if no change is recorded."""
    mdt = re.findall(r"(?m)^\d+:\s+(\S+-MDT0000)_UUID", lfs("mdts", directory))
    if not mdt:
        skip("lfs mdts lists no MDT0000")
    done = try_lfs("changelog", mdt[0])
    if done.status or not done.stdout.strip():
        skip(f"no consumer is registered, so the MDT records no change: {done}")
    return [line for line in done.stdout.splitlines() if line.endswith(name)]


@pytest.mark.case("LUS-CHANGELOG-01")
def test_created_file_is_recorded(client_dir):
    """The creation of a file is recorded with its name."""
    name = f"{MARK}-{client_dir.name}"
    make_file(client_dir / name)
    assert any(line.split()[1].endswith("CREAT") for line in records(client_dir, name))


@pytest.mark.case("LUS-CHANGELOG-02")
def test_removed_file_is_recorded(client_dir):
    """The removal of a file is recorded with its name, after its creation."""
    name = f"{MARK}-{client_dir.name}"
    make_file(client_dir / name).unlink()
    kinds = [line.split()[1][2:] for line in records(client_dir, name)]
    assert "CREAT" in kinds
    assert "UNLNK" in kinds[kinds.index("CREAT") :]
