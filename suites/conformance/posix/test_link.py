"""link(): two names, one file."""

from __future__ import annotations

import errno
import os

import pytest

from storagetest.agent.testlib import as_user, observe, refused
from storagetest.agent.testlib.tmpfiles import a_file, opened, tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 link(): DESCRIPTION"),
]
errors = "POSIX.1-2024 link(): ERRORS"

NOBODY = 54321


@pytest.mark.case("PSX-LINK-SAME-FILE", kills=("inode-not-stable",))
def test_both_names_are_one_file(here):
    """link() shall create a new link for the existing file: same serial number, mode and content."""
    a_file(here / "a", b"shared", 0o604)
    os.link(here / "a", here / "b")
    assert os.path.samestat(os.stat(here / "a"), os.stat(here / "b"))
    assert (here / "b").read_bytes() == b"shared"


@pytest.mark.case("PSX-LINK-NLINK", kills=("link-not-counted",))
def test_the_link_count_is_one_more(here):
    """The link count of the file shall be incremented by one."""
    a_file(here / "a")
    for count in range(2, 12):
        os.link(here / "a", here / str(count))
        assert os.stat(here / "a").st_nlink == count


@pytest.mark.case("PSX-LINK-WRITE-THROUGH")
def test_what_is_written_by_one_name_is_read_by_the_other(here):
    """Both names are the same file, size and data."""
    a_file(here / "a", b"old")
    os.link(here / "a", here / "b")
    with opened(here / "b", os.O_WRONLY | os.O_TRUNC) as descriptor:
        os.write(descriptor, b"newer")
    assert (here / "a").read_bytes() == b"newer"
    assert os.stat(here / "a").st_size == 5


@pytest.mark.case("PSX-LINK-CHMOD-THROUGH", kills=("attributes-stale", "link-copies"))
def test_a_mode_set_by_one_name_is_seen_by_the_other(here):
    """Attributes are the file's, not the name's."""
    a_file(here / "a", mode=0o644)
    os.link(here / "a", here / "b")
    os.chmod(here / "a", 0o600)
    assert os.stat(here / "b").st_mode & 0o777 == 0o600


@pytest.mark.case("PSX-LINK-DIRECTORY", section=errors)
def test_a_directory_gets_no_second_name(here):
    """[EPERM] The file is a directory, and the implementation prohibits link() on directories."""
    (here / "d").mkdir()
    refused(errno.EPERM, os.link, here / "d", here / "e")


@pytest.mark.case(
    "PSX-LINK-CTIME", kills=("directory-mtime-not-moved", "link-copies", "link-ctime-not-moved")
)
def test_link_stamps_the_file_and_the_directory(here):
    """The file's ctime, and mtime and ctime of the directory with the new entry, are marked for update."""
    (here / "d").mkdir()
    a_file(here / "a")
    file, directory = os.stat(here / "a"), os.stat(here / "d")
    tick(here)
    os.link(here / "a", here / "d" / "b")
    assert os.stat(here / "a").st_ctime_ns > file.st_ctime_ns
    assert os.stat(here / "a").st_mtime_ns == file.st_mtime_ns
    assert os.stat(here / "d").st_mtime_ns > directory.st_mtime_ns


@pytest.mark.case("PSX-LINK-TO-SYMLINK")
def test_a_link_to_a_symbolic_link(here):
    """Whether link() follows a symbolic link is implementation-defined; linkat() without a flag does not."""
    a_file(here / "f")
    os.symlink("f", here / "s")
    os.link(here / "s", here / "hard", follow_symlinks=False)
    assert os.readlink(here / "hard") == "f"
    assert os.lstat(here / "s").st_nlink == 2


@pytest.mark.case("PSX-LINK-FOLLOWS", kills=("link-copies",))
def test_linkat_follows_where_it_is_told_to(here):
    """With AT_SYMLINK_FOLLOW a new link for the target of the symbolic link shall be created."""
    a_file(here / "f", b"target")
    os.symlink("f", here / "s")
    directory = os.open(here, os.O_RDONLY)
    os.link("s", here / "hard", src_dir_fd=directory, follow_symlinks=True)
    os.close(directory)
    assert os.path.samestat(os.lstat(here / "hard"), os.stat(here / "f"))


@pytest.mark.case("PSX-LINK-FIFO", kills=("fifo-is-a-file",))
def test_a_fifo_has_a_second_name(here):
    """The existing file may be of any kind but a directory."""
    os.mkfifo(here / "a")
    os.link(here / "a", here / "b")
    assert os.path.samestat(os.lstat(here / "a"), os.lstat(here / "b"))


@pytest.mark.case("PSX-LINK-REMOVED", section=errors)
def test_a_file_that_is_gone_gets_no_name(here):
    """[ENOENT] A removed file that is still open cannot be given a name by its old one."""
    with opened(a_file(here / "a")):
        os.unlink(here / "a")
        refused(errno.ENOENT, os.link, here / "a", here / "b")


@pytest.mark.case("PSX-LINK-MAX", section=errors, kills=("link-not-counted",))
def test_a_file_has_as_many_links_as_it_may(here):
    """[EMLINK] is for more than {LINK_MAX} links: fewer are made (at most 32 are tried here), and counted."""
    a_file(here / "a")
    count = min(os.pathconf(here / "a", "PC_LINK_MAX"), 32)
    assert count >= 8, "_POSIX_LINK_MAX"
    for number in range(count - 1):
        os.link(here / "a", here / str(number))
    assert os.stat(here / "a").st_nlink == count


@pytest.mark.case("PSX-LINK-OTHERS-FILE", section=errors)
def test_a_link_to_a_file_of_somebody_elses(here):
    """[EACCES] or [EPERM] Permission to access the file may be wanted (Linux: protected_hardlinks)."""
    here.chmod(0o777)
    a_file(here / "a", mode=0o600)
    with as_user(NOBODY, NOBODY):
        try:
            os.link(here / "a", here / "b")
        except OSError as error:
            assert error.errno in (errno.EPERM, errno.EACCES)
            observe("who may not read a file may not link it")
        else:
            observe("who may not read a file may link it")
