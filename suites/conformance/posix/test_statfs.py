"""statvfs(), pathconf() and stat(): the limits and sizes that a file system reports."""

from __future__ import annotations

import errno
import os

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, skip
from storagetest.agent.testlib.libc import syncfs
from storagetest.agent.testlib.tmpfiles import fifo, make_file, open_fd, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 <sys/statvfs.h>"),
]


@pytest.mark.case("PSX-STATVFS-SANE", kills=("statfs-more-free-than-all", "statfs-zero"))
def test_free_blocks_are_at_most_all_blocks(client_dir):
    """f_bavail (for an unprivileged process) <= f_bfree <= f_blocks, in units of f_frsize.

    A member may have no meaningful value (fstatvfs(): DESCRIPTION): 0 (statfs(2)).
    """
    result = os.statvfs(client_dir)
    assert result.f_frsize > 0
    assert result.f_bsize > 0
    if result.f_blocks == 0:
        record_observation("the size of the file system is not reported")
    assert result.f_bavail <= result.f_bfree <= result.f_blocks


@pytest.mark.case("PSX-STATVFS-FILES")
def test_free_serial_numbers_are_at_most_all(client_dir):
    """f_ffree is at most f_files; a file system without a fixed number may report 0 for both."""
    result = os.statvfs(client_dir)
    record_observation("the number of files is " + ("limited" if result.f_files else "not reported"))
    assert result.f_favail <= result.f_ffree <= result.f_files


@pytest.mark.case("PSX-STATVFS-NAME-MAX")
def test_f_namemax_is_name_max(client_dir):
    """f_namemax is the maximum filename length: {NAME_MAX}."""
    assert os.statvfs(client_dir).f_namemax == os.pathconf(client_dir, "PC_NAME_MAX")


@pytest.mark.case("PSX-STATVFS-FSTATVFS", section="POSIX.1-2024 fstatvfs(): DESCRIPTION")
def test_fstatvfs_agrees_with_statvfs(client_dir):
    """fstatvfs() obtains the information of the file system that contains the open file."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        one, other = os.statvfs(descriptor), os.statvfs(client_dir)
    assert (one.f_blocks, one.f_frsize, one.f_namemax) == (other.f_blocks, other.f_frsize, other.f_namemax)


@pytest.mark.exclusive
@pytest.mark.case("PSX-STATVFS-LESS", level="SHOULD", kills=("statfs-more-free-than-all",))
def test_written_data_reduce_the_free_blocks(client_dir):
    """f_bfree counts free blocks: 8 MiB of incompressible data on the target leave fewer.

    Others may free space in the meantime, so that the data are written up to eight times. syncfs(2): a file
    system may count the blocks of data when it commits them, after fsync().
    """
    if os.statvfs(client_dir).f_blocks == 0:
        skip("the file system does not report its blocks: f_blocks is 0 (statfs(2))")

    def free():
        result = os.statvfs(client_dir)
        return result.f_bfree * result.f_frsize

    changes = []
    for turn in range(8):
        before = free()
        with open_fd(client_dir / f"f{turn}", os.O_CREAT | os.O_WRONLY) as descriptor:
            for _ in range(8):
                os.write(descriptor, os.urandom(1 << 20))
            os.fsync(descriptor)
            syncfs(descriptor)
            changes.append(free() - before)
        if changes[-1] <= -(4 << 20):
            return
    raise AssertionError(f"8 MiB written eight times change the free bytes by {changes}")


@pytest.mark.exclusive
@pytest.mark.case("PSX-STATVFS-UNITS", kills=("statfs-counts-bsize",), builds_on=("PSX-STATVFS-SANE",))
def test_free_blocks_are_counted_in_units_of_f_frsize(client_dir):
    """f_bfree is in units of f_frsize, and not of the f_bsize that is preferred for I/O.

    Data of two sizes take as many blocks of f_bsize as they have: only a wrong unit explains both.
    """
    found = os.statvfs(client_dir)
    if found.f_bsize == found.f_frsize or found.f_blocks == 0:
        skip("f_bsize is f_frsize, or the file system does not report its blocks")
    taken = {}
    for size in (8 << 20, 16 << 20):
        before = os.statvfs(client_dir).f_bfree
        with open_fd(client_dir / f"f{size}", os.O_CREAT | os.O_WRONLY) as descriptor:
            for _ in range(size >> 20):
                os.write(descriptor, os.urandom(1 << 20))
            os.fsync(descriptor)
            syncfs(descriptor)
            taken[size] = before - os.statvfs(client_dir).f_bfree
    wrong = all(abs(blocks * found.f_bsize - size) <= size // 8 for size, blocks in taken.items())
    assert not wrong, (
        f"{' and '.join(str(size) for size in taken)} bytes take {list(taken.values())} blocks of f_bfree: "
        f"units of f_bsize ({found.f_bsize}); those of f_frsize have {found.f_frsize} bytes"
    )


@pytest.mark.case("PSX-STATVFS-RDONLY", section="POSIX.1-2024 <sys/statvfs.h>: ST_RDONLY")
def test_writable_file_system_is_not_reported_read_only(client_dir):
    """ST_RDONLY is set in f_flag for a read-only file system, and not here."""
    make_file(client_dir / "f")
    assert not os.statvfs(client_dir).f_flag & os.ST_RDONLY


@pytest.mark.case("PSX-STAT-BLKSIZE", section="POSIX.1-2024 <sys/stat.h>")
def test_preferred_block_size_is_positive(client_dir):
    """st_blksize is a file-system-specific preferred I/O block size: a positive number."""
    assert os.stat(make_file(client_dir / "f")).st_blksize > 0


@pytest.mark.case("PSX-STAT-DEVICE", section="POSIX.1-2024 <sys/stat.h>")
def test_files_of_one_file_system_have_one_device(client_dir):
    """st_dev is the same for all files of a file system.

    A mount point may unite file systems: overlayfs reports a device for its directories and another one for
    the files of a layer (Linux Documentation/filesystems/overlayfs.rst, "Inode properties"). So files are
    compared with files, and directories with directories.
    """
    directories = [client_dir / name for name in ("d", "e")]
    for directory in directories:
        directory.mkdir()
    files = [make_file(directory / "f") for directory in directories]
    for kind, paths in (("files", files), ("directories", directories)):
        devices = {os.stat(path).st_dev for path in paths}
        assert len(devices) == 1, f"two {kind} have the devices {sorted(devices)}"


@pytest.mark.case("PSX-PATHCONF-EINVAL", section="POSIX.1-2024 pathconf(): ERRORS")
def test_pathconf_of_an_unknown_variable_is_refused(client_dir):
    """[EINVAL] The value of name is not valid."""
    assert_errno(errno.EINVAL, os.pathconf, client_dir, 9999)


@pytest.mark.case("PSX-PATHCONF-PIPE-BUF", section="POSIX.1-2024 pathconf(): DESCRIPTION")
def test_pipe_buf_of_a_fifo(client_dir):
    """{PIPE_BUF} of a FIFO is at least {_POSIX_PIPE_BUF}, 512."""
    fifo(client_dir / "fifo")
    assert os.pathconf(client_dir / "fifo", "PC_PIPE_BUF") >= 512


@pytest.mark.case("PSX-STATVFS-DANGLING", section="POSIX.1-2024 statvfs(): ERRORS")
def test_statvfs_follows_links(client_dir):
    """[ENOENT] A component does not name an existing file: here the target of a dangling link."""
    symbolic_link("absent", client_dir / "link")
    assert_errno(errno.ENOENT, os.statvfs, client_dir / "link")
