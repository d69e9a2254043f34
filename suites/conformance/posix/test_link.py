"""link(): several names of one file."""

from __future__ import annotations

import errno
import os

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, run_as_user
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    hard_link,
    make_file,
    open_fd,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 link(): DESCRIPTION"
    ),
]
errors = "POSIX.1-2024 link(): ERRORS"

USER = 54321


@pytest.mark.case("PSX-LINK-SAME-FILE", kills=("inode-not-stable",))
def test_linked_names_are_one_file(client_dir):
    """link() shall create a new link for the existing file: same serial number, mode and content."""
    make_file(client_dir / "a", b"shared", 0o604)
    hard_link(client_dir / "a", client_dir / "b")
    assert os.path.samestat(os.stat(client_dir / "a"), os.stat(client_dir / "b"))
    assert (client_dir / "b").read_bytes() == b"shared"


@pytest.mark.case(
    "PSX-LINK-NLINK", builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-SAME-FILE"), kills=("link-not-counted",)
)
def test_link_increments_the_link_count(client_dir):
    """The link count of the file shall be incremented by one, up to the 8 of _POSIX_LINK_MAX."""
    make_file(client_dir / "a")
    for count in range(2, 9):
        hard_link(client_dir / "a", client_dir / str(count))
        assert os.stat(client_dir / "a").st_nlink == count


@pytest.mark.case("PSX-LINK-WRITE-THROUGH")
def test_data_written_by_one_name_are_read_by_the_other(client_dir):
    """Both names are the same file, with the same size and data."""
    make_file(client_dir / "a", b"old")
    hard_link(client_dir / "a", client_dir / "b")
    with open_fd(client_dir / "b", os.O_WRONLY | os.O_TRUNC) as descriptor:
        os.write(descriptor, b"newer")
    assert (client_dir / "a").read_bytes() == b"newer"
    assert os.stat(client_dir / "a").st_size == 5


@pytest.mark.case(
    "PSX-LINK-CHMOD-THROUGH",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"),
    kills=("attributes-stale", "link-copies"),
)
def test_a_mode_set_by_one_name_is_seen_by_the_other(client_dir):
    """Attributes belong to the file, not to the name."""
    make_file(client_dir / "a", mode=0o644)
    hard_link(client_dir / "a", client_dir / "b")
    os.chmod(client_dir / "a", 0o600)
    assert os.stat(client_dir / "b").st_mode & 0o777 == 0o600


@pytest.mark.case("PSX-LINK-DIRECTORY", section=errors)
def test_link_to_a_directory_is_refused(client_dir):
    """[EPERM] The file is a directory, and the implementation prohibits link() on directories."""
    (client_dir / "d").mkdir()
    assert_errno(errno.EPERM, os.link, client_dir / "d", client_dir / "e")


@pytest.mark.case(
    "PSX-LINK-CTIME",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"),
    kills=("directory-mtime-not-moved", "link-copies", "link-ctime-not-moved"),
)
def test_link_updates_the_times_of_file_and_directory(client_dir):
    """The file's ctime, and mtime and ctime of the directory with the new entry, are marked for update."""
    (client_dir / "d").mkdir()
    make_file(client_dir / "a")
    file, directory = os.stat(client_dir / "a"), os.stat(client_dir / "d")
    wait_clock_tick(client_dir)
    hard_link(client_dir / "a", client_dir / "d" / "b")
    assert os.stat(client_dir / "a").st_ctime_ns > file.st_ctime_ns
    assert os.stat(client_dir / "a").st_mtime_ns == file.st_mtime_ns
    assert os.stat(client_dir / "d").st_mtime_ns > directory.st_mtime_ns


@pytest.mark.case("PSX-LINK-TO-SYMLINK", builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"))
def test_hard_link_to_a_symbolic_link(client_dir):
    """Whether link() follows a symbolic link is implementation-defined; linkat() without a flag does not."""
    make_file(client_dir / "f")
    symbolic_link("f", client_dir / "s")
    hard_link(client_dir / "s", client_dir / "hard", follow_symlinks=False)
    assert os.readlink(client_dir / "hard") == "f"
    assert os.lstat(client_dir / "s").st_nlink == 2


@pytest.mark.case(
    "PSX-LINK-FOLLOWS", builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-SAME-FILE"), kills=("link-copies",)
)
def test_linkat_follows_a_link_if_the_flag_is_set(client_dir):
    """With AT_SYMLINK_FOLLOW a new link for the target of the symbolic link shall be created."""
    make_file(client_dir / "f", b"target")
    symbolic_link("f", client_dir / "s")
    directory = os.open(client_dir, os.O_RDONLY)
    hard_link("s", client_dir / "hard", src_dir_fd=directory, follow_symlinks=True)
    os.close(directory)
    assert os.path.samestat(os.lstat(client_dir / "hard"), os.stat(client_dir / "f"))


@pytest.mark.case(
    "PSX-LINK-FIFO", builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-SAME-FILE"), kills=("fifo-is-a-file",)
)
def test_fifo_can_be_linked(client_dir):
    """The existing file may be of any type but a directory."""
    fifo(client_dir / "a")
    hard_link(client_dir / "a", client_dir / "b")
    assert os.path.samestat(os.lstat(client_dir / "a"), os.lstat(client_dir / "b"))


@pytest.mark.case("PSX-LINK-REMOVED", section=errors)
def test_removed_file_cannot_be_linked(client_dir):
    """[ENOENT] A removed file that is still open cannot be linked by its old name."""
    with open_fd(make_file(client_dir / "a")):
        os.unlink(client_dir / "a")
        assert_errno(errno.ENOENT, os.link, client_dir / "a", client_dir / "b")


@pytest.mark.case(
    "PSX-LINK-MAX",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"),
    section=errors,
    kills=("link-not-counted",),
)
def test_file_can_have_many_links(client_dir):
    """[EMLINK] is for more than {LINK_MAX} links: fewer (at most 32 are tried here) are made and counted.

    The C library guesses {LINK_MAX} by the type of the file system: a lower limit of 8 or more is observed.
    """
    make_file(client_dir / "a")
    count = min(os.pathconf(client_dir / "a", "PC_LINK_MAX"), 32)
    assert count >= 8, "_POSIX_LINK_MAX"
    for number in range(1, count):
        try:
            hard_link(client_dir / "a", client_dir / str(number))
        except OSError as error:
            if error.errno != errno.EMLINK or number < 8:  # _POSIX_LINK_MAX
                raise
            record_observation(f"a file has at most {number} links")
            count = number
            break
    assert os.stat(client_dir / "a").st_nlink == count


@pytest.mark.case("PSX-LINK-OTHERS-FILE", section=errors)
def test_link_to_a_file_of_another_user(client_dir):
    """[EACCES] or [EPERM] Permission to access the file may be required (Linux: protected_hardlinks)."""
    client_dir.chmod(0o777)
    make_file(client_dir / "a", mode=0o600)
    with run_as_user(USER, USER):
        try:
            hard_link(client_dir / "a", client_dir / "b")
        except OSError as error:
            assert error.errno in (errno.EPERM, errno.EACCES)
            record_observation("a user without read permission may not link the file")
        else:
            record_observation("a user without read permission may link the file")
