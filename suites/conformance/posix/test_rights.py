"""Who may do what: the answer is for the user who asks, each time, and for the mode as it is now."""

from __future__ import annotations

import errno
import os

import pytest

from storagetest.agent.testlib import assert_errno, run_as_user
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 File Access Permissions"
    ),
]

USER = 54321


@pytest.mark.case("PSX-RIGHTS-CHMOD-GROUP", section="POSIX.1-2024 chmod(): ERRORS", kills=("chmod-by-group",))
def test_member_of_the_group_cannot_change_the_mode(client_dir):
    """[EPERM] The effective user ID does not match the owner of the file: its group may not, either."""
    make_file(client_dir / "f", mode=0o660)
    os.chown(client_dir / "f", USER, USER)
    with run_as_user(USER + 1, USER):
        assert_errno(errno.EPERM, os.chmod, client_dir / "f", 0o666)
        assert_errno(errno.EPERM, os.chown, client_dir / "f", USER + 1, -1)
    with run_as_user(USER + 1, USER + 1, USER):
        assert_errno(errno.EPERM, os.chmod, client_dir / "f", 0o666)
    assert os.stat(client_dir / "f").st_mode & 0o7777 == 0o660


@pytest.mark.case(
    "PSX-RIGHTS-ACCESS-DIRECTORY",
    section="POSIX.1-2024 access(): DESCRIPTION",
    kills=("access-of-directories-always",),
)
def test_access_of_a_directory_follows_its_mode(client_dir):
    """access() checks a directory's permission bits as those of any file."""
    (client_dir / "d").mkdir()
    for mode in (0o700, 0o711, 0o744, 0o755, 0o777):
        os.chmod(client_dir / "d", mode)
        with run_as_user(USER, USER):
            for bit in (os.R_OK, os.W_OK, os.X_OK):
                assert os.access(client_dir / "d", bit) is bool(mode & bit), f"mode {mode:o}, access {bit}"


@pytest.mark.case(
    "PSX-RIGHTS-UTIMENS-NOW", section="POSIX.1-2024 utimensat(): DESCRIPTION", kills=("times-by-owner-only",)
)
def test_writer_who_is_not_the_owner_sets_the_times_to_now(client_dir):
    """A process with write permission may set both times to the current time; only the owner to others."""
    make_file(client_dir / "f", mode=0o666)
    os.utime(client_dir / "f", (1_000_000_000, 1_000_000_000))
    with run_as_user(USER, USER):
        os.utime(client_dir / "f")
        assert_errno(errno.EPERM, os.utime, client_dir / "f", (5, 5))
    found = os.stat(client_dir / "f")
    assert min(found.st_atime, found.st_mtime) > 1_000_000_000


@pytest.mark.case("PSX-RIGHTS-OTHERS-OPEN", kills=("opened-once-readable",))
def test_open_by_one_user_gives_nothing_to_another(client_dir):
    """Access is granted to the process that asks, whatever others have opened or read before."""
    make_file(client_dir / "f", b"secret", 0o600)
    with open_fd(client_dir / "f", os.O_RDONLY) as descriptor:
        assert os.pread(descriptor, 6, 0) == b"secret"
        with run_as_user(USER, USER):
            assert_errno(errno.EACCES, os.open, client_dir / "f", os.O_RDONLY)
            assert_errno(errno.EACCES, os.open, client_dir / "f", os.O_WRONLY)
    with run_as_user(USER, USER):
        assert_errno(errno.EACCES, os.open, client_dir / "f", os.O_RDONLY)


@pytest.mark.case("PSX-RIGHTS-WITHDRAWN", kills=("searched-once-searchable",))
def test_permission_that_is_withdrawn_is_gone(client_dir):
    """The mode as it is now decides: of a file, and of the directories that lead to it."""
    (client_dir / "d").mkdir()
    os.chmod(client_dir / "d", 0o755)
    make_file(client_dir / "d" / "f", b"x", 0o644)
    for _ in range(2):
        with run_as_user(USER, USER):
            assert (client_dir / "d" / "f").read_bytes() == b"x"
        os.chmod(client_dir / "d", 0o700)
        with run_as_user(USER, USER):
            assert_errno(errno.EACCES, os.stat, client_dir / "d" / "f")
            assert_errno(errno.EACCES, os.open, client_dir / "d" / "f", os.O_RDONLY)
        os.chmod(client_dir / "d", 0o755)
        os.chmod(client_dir / "d" / "f", 0o600)
        with run_as_user(USER, USER):
            assert_errno(errno.EACCES, os.open, client_dir / "d" / "f", os.O_RDONLY)
        os.chmod(client_dir / "d" / "f", 0o644)
