"""statvfs() and pathconf(): what a file system says of itself, and whether it is so."""

from __future__ import annotations

import errno
import os

import pytest

from storagetest.agent.testlib import observe, refused
from storagetest.agent.testlib.tmpfiles import a_file, opened

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 <sys/statvfs.h>"),
]


@pytest.mark.case("PSX-STATVFS-SANE", kills=("statfs-more-free-than-all", "statfs-zero"))
def test_free_is_not_more_than_all(here):
    """f_bavail (for who is not privileged) <= f_bfree <= f_blocks, in units of f_frsize."""
    found = os.statvfs(here)
    assert found.f_frsize > 0
    assert found.f_bsize > 0
    assert found.f_blocks > 0
    assert found.f_bavail <= found.f_bfree <= found.f_blocks


@pytest.mark.case("PSX-STATVFS-FILES")
def test_free_serial_numbers_are_not_more_than_all(here):
    """f_ffree is of f_files; a file system without a fixed number of them may say 0 for both."""
    found = os.statvfs(here)
    observe("the number of files is " + ("limited" if found.f_files else "not said"))
    assert found.f_favail <= found.f_ffree <= found.f_files


@pytest.mark.case("PSX-STATVFS-NAME-MAX")
def test_f_namemax_is_what_pathconf_says(here):
    """f_namemax is the maximum filename length: {NAME_MAX}."""
    assert os.statvfs(here).f_namemax == os.pathconf(here, "PC_NAME_MAX")


@pytest.mark.case("PSX-STATVFS-FSTATVFS", section="POSIX.1-2024 fstatvfs(): DESCRIPTION")
def test_fstatvfs_is_of_the_same_file_system(here):
    """fstatvfs() obtains the information of the file system that contains the open file."""
    with opened(a_file(here / "f")) as descriptor:
        one, other = os.statvfs(descriptor), os.statvfs(here)
    assert (one.f_blocks, one.f_frsize, one.f_namemax) == (other.f_blocks, other.f_frsize, other.f_namemax)


@pytest.mark.alone
@pytest.mark.case("PSX-STATVFS-LESS", level="SHOULD", kills=("statfs-more-free-than-all",))
def test_what_is_written_is_taken_from_what_is_free(here):
    """f_bfree counts free blocks: 8 MiB that nothing compresses leave fewer, when they are on the target."""

    def free():
        found = os.statvfs(here)
        return found.f_bfree * found.f_frsize

    before = free()
    with opened(here / "f", os.O_CREAT | os.O_WRONLY) as descriptor:
        for _ in range(8):
            os.write(descriptor, os.urandom(1 << 20))
        os.fsync(descriptor)
        assert free() <= before - (4 << 20)


@pytest.mark.case("PSX-STATVFS-RDONLY", section="POSIX.1-2024 <sys/statvfs.h>: ST_RDONLY")
def test_a_file_system_that_takes_files_is_not_read_only(here):
    """ST_RDONLY is set in f_flag for a read-only file system, and not here."""
    a_file(here / "f")
    assert not os.statvfs(here).f_flag & os.ST_RDONLY


@pytest.mark.case("PSX-STAT-BLKSIZE", section="POSIX.1-2024 <sys/stat.h>")
def test_the_preferred_block_size_is_one(here):
    """st_blksize is a file-system-specific preferred I/O block size: a positive number."""
    assert os.stat(a_file(here / "f")).st_blksize > 0


@pytest.mark.case("PSX-STAT-DEVICE", section="POSIX.1-2024 <sys/stat.h>")
def test_files_of_one_file_system_are_of_one_device(here):
    """st_dev is the same for all files of a file system."""
    (here / "d").mkdir()
    assert os.stat(a_file(here / "d" / "f")).st_dev == os.stat(here).st_dev


@pytest.mark.case("PSX-PATHCONF-EINVAL", section="POSIX.1-2024 pathconf(): ERRORS")
def test_a_variable_that_does_not_exist(here):
    """[EINVAL] The value of name is not valid."""
    refused(errno.EINVAL, os.pathconf, here, 9999)


@pytest.mark.case("PSX-PATHCONF-PIPE-BUF", section="POSIX.1-2024 pathconf(): DESCRIPTION")
def test_pipe_buf_of_a_fifo(here):
    """{PIPE_BUF} of a FIFO is at least {_POSIX_PIPE_BUF}, 512."""
    os.mkfifo(here / "fifo")
    assert os.pathconf(here / "fifo", "PC_PIPE_BUF") >= 512


@pytest.mark.case("PSX-STATVFS-DANGLING", section="POSIX.1-2024 statvfs(): ERRORS")
def test_statvfs_follows_links(here):
    """[ENOENT] A component does not name an existing file: a dangling link leads to none."""
    os.symlink("absent", here / "link")
    refused(errno.ENOENT, os.statvfs, here / "link")
