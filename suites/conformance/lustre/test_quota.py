"""Quota: what a user's files take is reported. The cases set no limit: that would affect others' files."""

from __future__ import annotations

import os
import re

import pytest

from storagetest.agent.testlib import call_in_subprocess, run_as_user, skip
from storagetest.agent.testlib.lfs import try_lfs
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

NO_MUTANT = "no file system in user space has layouts, quota or a changelog"

pytestmark = [
    pytest.mark.needs("filesystem", "layouts"),
    pytest.mark.case(level="MUST", section="lfs-quota(1): DESCRIPTION", no_mutant_reason=NO_MUTANT),
]
USER = 61237
KIB = 1024


def usage(directory):
    """Return (KiB, files) that ``lfs quota`` reports for the user; skip the case without quota."""
    done = try_lfs("quota", "-q", "-u", USER, directory)
    if done.status:
        skip(f"this file system reports no quota: {done}")
    match = re.search(r"\s(\d+)\*?\s+\d+\s+\d+\s+\S+\s+(\d+)\*?\s+\d+\s+\d+\s+\S+", done.stdout)
    if match is None or "[" in done.stdout:
        skip(f"quota is not enforced here, so usage is not reported: {done}")
    return int(match[1]), int(match[2])


def _write(path, size):
    with run_as_user(USER, USER), open_fd(path, os.O_CREAT | os.O_WRONLY) as descriptor:
        os.write(descriptor, os.urandom(size))
        os.fsync(descriptor)


@pytest.mark.case("LUS-QUOTA-01")
def test_files_of_a_user_are_counted(client_dir):
    """A file that a user creates is counted for that user, and no longer when it is removed."""
    os.chmod(client_dir, 0o777)
    _, before = usage(client_dir)
    call_in_subprocess(_write, str(client_dir / "f"), 10)
    assert usage(client_dir)[1] == before + 1
    os.unlink(client_dir / "f")
    assert usage(client_dir)[1] == before


@pytest.mark.case("LUS-QUOTA-02")
def test_space_of_a_user_is_counted(client_dir):
    """What a user has written and flushed is counted for that user."""
    os.chmod(client_dir, 0o777)
    before, _ = usage(client_dir)
    call_in_subprocess(_write, str(client_dir / "f"), 1024 * KIB)
    assert usage(client_dir)[0] >= before + 1024


@pytest.mark.case("LUS-QUOTA-03")
def test_given_away_file_is_counted_for_its_new_owner(client_dir):
    """A file whose owner changes is counted for the new owner."""
    _, before = usage(client_dir)
    os.chown(make_file(client_dir / "f"), USER, USER)
    assert usage(client_dir)[1] == before + 1
