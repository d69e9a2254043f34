"""lfs migrate: a file moves to another layout with its data and attributes."""

from __future__ import annotations

import os

import pytest

from storagetest.agent.testlib.lfs import MIB, lfs, optional_lfs, parts_of, refused
from storagetest.agent.testlib.tmpfiles import open_fd, pattern_bytes, read_at

NO_MUTANT = "no file system in user space has layouts, quota or a changelog"

pytestmark = [
    pytest.mark.needs("filesystem", "layouts"),
    pytest.mark.case(level="MUST", section="lfs-migrate(1): DESCRIPTION", no_mutant_reason=NO_MUTANT),
]
DATA = pattern_bytes(2 * MIB + 321)


def migrated(path, *words):
    """Fill a file of one stripe and migrate it; skip the case if the file system cannot."""
    lfs("setstripe", "-c", 1, "-S", "1M", path)
    with open_fd(path, os.O_WRONLY) as descriptor:
        assert os.write(descriptor, DATA) == len(DATA)
    os.chmod(path, 0o640)
    os.utime(path, ns=(10**18, 10**18 + 10**9))
    before = path.stat()
    optional_lfs("migration of files", "migrate", *words, path)
    return before


@pytest.mark.case("LUS-MIGRATE-01")
def test_migrated_file_has_its_data(client_dir):
    """The data of a file are the same after it has moved to another layout."""
    migrated(client_dir / "f", "-c", -1, "-S", "256K")
    assert read_at(client_dir / "f", len(DATA) + 1) == DATA


@pytest.mark.case("LUS-MIGRATE-02", builds_on=("LUS-MIGRATE-01",))
def test_migrated_file_has_the_new_layout(client_dir):
    """The file has the layout that was specified."""
    migrated(client_dir / "f", "-c", 1, "-S", "256K")
    (part,) = parts_of(client_dir / "f")
    assert (part.count, part.size) == (1, 256 * 1024)


@pytest.mark.case("LUS-MIGRATE-03", builds_on=("LUS-MIGRATE-01",))
def test_migrated_file_is_the_same_file(client_dir):
    """The file keeps its inode number, mode and modification time."""
    before = migrated(client_dir / "f", "-c", 1, "-S", "256K")
    after = (client_dir / "f").stat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_mtime_ns,
    )


@pytest.mark.case("LUS-MIGRATE-04", builds_on=("LUS-MIGRATE-01",))
def test_file_migrates_to_components(client_dir):
    """A plain file can move to a progressive layout."""
    migrated(client_dir / "f", "-E", "1M", "-c", 1, "-E", "-1", "-c", -1)
    assert [part.end for part in parts_of(client_dir / "f")] == [MIB, None]
    assert read_at(client_dir / "f", len(DATA) + 1) == DATA


@pytest.mark.case("LUS-MIGRATE-05", builds_on=("LUS-MIGRATE-01",))
def test_open_descriptor_reads_the_migrated_file(client_dir):
    """A descriptor that was open before the migration reads and writes the file after it."""
    path = client_dir / "f"
    lfs("setstripe", "-c", 1, path)
    with open_fd(path, os.O_RDWR) as descriptor:
        os.write(descriptor, DATA)
        optional_lfs("migration of files", "migrate", "-c", 1, "-S", "256K", path)
        assert os.pread(descriptor, 100, 0) == DATA[:100]
        os.pwrite(descriptor, b"new", 0)
    assert read_at(path, 10) == b"new" + DATA[3:10]


@pytest.mark.case("LUS-MIGRATE-06")
def test_missing_file_does_not_migrate(client_dir):
    """The migration of a file that does not exist is refused, and creates none."""
    refused("migrate", "-c", 1, client_dir / "none")
    assert not os.path.lexists(client_dir / "none")
