"""chmod() and chown(): who may, what stays, what is cleared."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import as_user, observe, refused
from storagetest.agent.testlib.tmpfiles import a_file, opened, tick

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(level="MUST")]
chmod = "POSIX.1-2024 chmod(): DESCRIPTION"
chmod_errors = "POSIX.1-2024 chmod(): ERRORS"
chown = "POSIX.1-2024 chown(): DESCRIPTION"
chown_errors = "POSIX.1-2024 chown(): ERRORS"

NOBODY = 54321


def mode_of(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, id=f"{mode:o}", marks=pytest.mark.case(f"PSX-CHMOD-{mode:04o}"))
        for mode in (0o000, 0o111, 0o222, 0o444, 0o640, 0o755, 0o777, 0o1777, 0o2755, 0o4755, 0o7777)
    ],
)
@pytest.mark.case(section=chmod, kills=("chmod-ignored",))
def test_chmod_sets_all_twelve_bits(here, mode):
    """chmod() shall change S_ISUID, S_ISGID, S_ISVTX and the permission bits to those of mode."""
    a_file(here / "f")
    os.chmod(here / "f", mode)
    assert mode_of(here / "f") == mode


@pytest.mark.case("PSX-CHMOD-DIRECTORY", section=chmod)
def test_chmod_of_a_directory(here):
    """chmod() takes a directory, and set-group-ID and sticky bit of it are kept."""
    (here / "d").mkdir()
    for mode in (0o700, 0o1777, 0o2775, 0o755):
        os.chmod(here / "d", mode)
        assert mode_of(here / "d") == mode


@pytest.mark.case("PSX-CHMOD-FOLLOWS", section=chmod)
def test_chmod_follows_links(here):
    """chmod() acts on the file that a symbolic link names."""
    a_file(here / "f", mode=0o644)
    os.symlink("f", here / "link")
    os.chmod(here / "link", 0o600)
    assert mode_of(here / "f") == 0o600


@pytest.mark.case("PSX-CHMOD-FCHMOD", section="POSIX.1-2024 fchmod(): DESCRIPTION")
def test_fchmod_acts_on_an_open_file(here):
    """fchmod() is chmod() of the file that a descriptor refers to, be it removed."""
    with opened(a_file(here / "f")) as descriptor:
        os.fchmod(descriptor, 0o640)
        assert mode_of(here / "f") == 0o640
        os.unlink(here / "f")
        os.fchmod(descriptor, 0o600)
        assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o600


@pytest.mark.case("PSX-CHMOD-CTIME", section=chmod, kills=("chmod-ctime-not-moved",))
def test_chmod_stamps_the_file(here):
    """Upon success the last file status change time stamp is marked for update, and no other."""
    before = os.stat(a_file(here / "f"))
    tick(here)
    os.chmod(here / "f", 0o600)
    after = os.stat(here / "f")
    assert after.st_ctime_ns > before.st_ctime_ns
    assert after.st_mtime_ns == before.st_mtime_ns


@pytest.mark.case("PSX-CHMOD-EPERM", section=chmod_errors, kills=("chmod-by-anybody",))
def test_chmod_is_the_owners(here):
    """[EPERM] The effective user ID does not match the owner, and the process is not privileged."""
    here.chmod(0o777)
    a_file(here / "f", mode=0o666)
    with as_user(NOBODY, NOBODY):
        refused(errno.EPERM, os.chmod, here / "f", 0o600)
    assert mode_of(here / "f") == 0o666


@pytest.mark.case("PSX-CHMOD-OWNER", section=chmod)
def test_the_owner_may_chmod_a_file_that_he_may_not_read(here):
    """It takes the ownership alone: no permission bit is asked for."""
    a_file(here / "f")
    os.chown(here / "f", NOBODY, NOBODY)
    os.chmod(here / "f", 0)
    with as_user(NOBODY, NOBODY):
        os.chmod(here / "f", 0o640)
    assert mode_of(here / "f") == 0o640


@pytest.mark.case("PSX-CHMOD-SETGID-CLEARED", section=chmod, kills=("setgid-kept-on-chmod",))
def test_set_group_id_is_not_given_by_who_is_not_in_the_group(here):
    """Without privilege, where the file's group is none of the process's, S_ISGID shall be cleared."""
    a_file(here / "f")
    os.chown(here / "f", NOBODY, NOBODY + 1)
    with as_user(NOBODY, NOBODY):
        os.chmod(here / "f", 0o2755)
    assert mode_of(here / "f") == 0o755


@pytest.mark.case("PSX-CHMOD-STICKY-FILE", section=chmod_errors, level="MAY", kills=("chmod-ignored",))
def test_the_sticky_bit_of_a_file_is_not_everybodys(here):
    """An implementation may refuse or ignore S_ISVTX on a file for who is not privileged; Linux takes it."""
    a_file(here / "f")
    os.chown(here / "f", NOBODY, NOBODY)
    with as_user(NOBODY, NOBODY):
        os.chmod(here / "f", 0o1644)
    observe(f"the mode becomes {mode_of(here / 'f'):o}")
    assert mode_of(here / "f") == 0o1644


@pytest.mark.case("PSX-CHMOD-OPEN-STAYS", section=chmod, kills=("open-truncates",))
def test_a_descriptor_outlives_the_permission(here):
    """A descriptor that was opened with a permission keeps it: reading and writing go on."""
    here.chmod(0o777)
    with as_user(NOBODY, NOBODY), opened(a_file(here / "f", b"x", 0o600)) as descriptor:
        os.chmod(here / "f", 0)
        assert os.pread(descriptor, 1, 0) == b"x"
        assert os.pwrite(descriptor, b"y", 0) == 1
        os.fsync(descriptor)
    assert (here / "f").read_bytes() == b"y"


@pytest.mark.parametrize(
    ("user", "group"),
    [
        pytest.param(*ids, id=name.lower(), marks=pytest.mark.case(f"PSX-CHOWN-{name}"))
        for name, *ids in (
            ("BOTH", 12345, 23456),
            ("USER", 12345, -1),
            ("GROUP", -1, 23456),
            ("NEITHER", -1, -1),
            ("32-BIT", 3000000000, 3000000001),
        )
    ],
)
@pytest.mark.case(section=chown)
def test_chown_sets_owner_and_group(here, user, group):
    """The user ID and group ID shall be set; the value -1 leaves the corresponding ID as it is."""
    a_file(here / "f")
    os.chown(here / "f", 7, 8)
    os.chown(here / "f", user, group)
    found = os.stat(here / "f")
    assert (found.st_uid, found.st_gid) == (7 if user == -1 else user, 8 if group == -1 else group)


@pytest.mark.case("PSX-CHOWN-LCHOWN", section="POSIX.1-2024 lchown(): DESCRIPTION", kills=("chown-ignored",))
def test_lchown_acts_on_the_link(here):
    """lchown() of a symbolic link changes the link's own ownership, not that of the file."""
    a_file(here / "f")
    os.symlink("f", here / "link")
    os.lchown(here / "link", NOBODY, NOBODY)
    assert os.lstat(here / "link").st_uid == NOBODY
    assert os.stat(here / "f").st_uid == 0


@pytest.mark.case("PSX-CHOWN-FOLLOWS", section=chown, kills=("chown-ignored",))
def test_chown_follows_links(here):
    """chown() acts on the file that a symbolic link names."""
    a_file(here / "f")
    os.symlink("f", here / "link")
    os.chown(here / "link", NOBODY, NOBODY)
    assert os.stat(here / "f").st_uid == NOBODY
    assert os.lstat(here / "link").st_uid == 0


@pytest.mark.case("PSX-CHOWN-CTIME", section=chown, kills=("chown-ctime-not-moved", "chown-ignored"))
def test_chown_stamps_the_file(here):
    """Upon success the last file status change time stamp is marked for update."""
    before = os.stat(a_file(here / "f"))
    tick(here)
    os.chown(here / "f", NOBODY, NOBODY)
    after = os.stat(here / "f")
    assert after.st_ctime_ns > before.st_ctime_ns
    assert after.st_mtime_ns == before.st_mtime_ns


@pytest.mark.case("PSX-CHOWN-EPERM-GIVE", section=chown_errors, kills=("chown-by-anybody", "chown-ignored"))
def test_a_file_cannot_be_given_away(here):
    """[EPERM] _POSIX_CHOWN_RESTRICTED: only a privileged process changes the user ID."""
    here.chmod(0o777)
    with as_user(NOBODY, NOBODY):
        a_file(here / "f")
        refused(errno.EPERM, os.chown, here / "f", NOBODY + 1, -1)
    assert os.stat(here / "f").st_uid == NOBODY


@pytest.mark.case("PSX-CHOWN-EPERM-TAKE", section=chown_errors, kills=("chown-by-anybody", "chown-ignored"))
def test_a_file_cannot_be_taken(here):
    """[EPERM] The effective user ID does not match the owner, and the process is not privileged."""
    here.chmod(0o777)
    a_file(here / "f", mode=0o666)
    with as_user(NOBODY, NOBODY):
        refused(errno.EPERM, os.chown, here / "f", NOBODY, -1)
        refused(errno.EPERM, os.chown, here / "f", -1, NOBODY)
    assert os.stat(here / "f").st_uid == 0


@pytest.mark.case(
    "PSX-CHOWN-EPERM-GROUP",
    section=chown_errors,
    kills=("chown-by-anybody", "chown-minus-one", "groups-ignored"),
)
def test_a_group_that_the_owner_is_not_in_is_refused(here):
    """[EPERM] The owner may change the group to one of his own, and to no other."""
    here.chmod(0o777)
    with as_user(NOBODY, NOBODY, NOBODY + 1):
        a_file(here / "f")
        os.chown(here / "f", -1, NOBODY + 1)
        refused(errno.EPERM, os.chown, here / "f", -1, NOBODY + 2)
    assert os.stat(here / "f").st_gid == NOBODY + 1


@pytest.mark.case(
    "PSX-CHOWN-CLEARS-SUID", section=chown, kills=("chown-ignored", "chown-minus-one", "setuid-kept-on-chown")
)
def test_chown_without_privilege_clears_set_user_id_and_set_group_id(here):
    """Of a regular file with execute bits, both bits shall be cleared when the process is not privileged."""
    here.chmod(0o777)
    with as_user(NOBODY, NOBODY, NOBODY + 1):
        a_file(here / "f", mode=0o755)
        os.chmod(here / "f", 0o6755)
        os.chown(here / "f", -1, NOBODY + 1)
    assert mode_of(here / "f") & 0o6000 == 0


@pytest.mark.case("PSX-CHOWN-CLEARS-SUID-ROOT", section=chown, level="MAY", kills=("chown-ignored",))
def test_chown_with_privilege_may_clear_them_too(here):
    """Whether they are cleared for a privileged process is implementation-defined; Linux clears them."""
    a_file(here / "f", mode=0o755)
    os.chmod(here / "f", 0o6755)
    os.chown(here / "f", NOBODY, NOBODY)
    assert mode_of(here / "f") & 0o6000 == 0


@pytest.mark.case("PSX-WRITE-CLEARS-SUID", section="POSIX.1-2024 write(): DESCRIPTION")
def test_a_write_without_privilege_clears_set_user_id(here):
    """S_ISUID and S_ISGID may be cleared by a write; Linux clears them for who lacks CAP_FSETID."""
    a_file(here / "f", mode=0o777)
    os.chmod(here / "f", 0o6777)
    here.chmod(0o777)
    with as_user(NOBODY, NOBODY), opened(here / "f", os.O_WRONLY) as descriptor:
        os.write(descriptor, b"x")
        os.fsync(descriptor)
    observe(f"the mode becomes {mode_of(here / 'f'):o}")
    assert mode_of(here / "f") & 0o1777 == 0o777


ACCESS = [
    # mode, who asks, what for, whether he may
    ("OWNER-R", 0o400, "owner", os.R_OK, True),
    ("OWNER-W", 0o400, "owner", os.W_OK, False),
    ("OWNER-X", 0o600, "owner", os.X_OK, False),
    ("GROUP-W", 0o620, "group", os.W_OK, True),
    ("GROUP-R", 0o604, "group", os.R_OK, False),
    ("OTHER-R", 0o604, "other", os.R_OK, True),
    ("OTHER-RW", 0o604, "other", os.R_OK | os.W_OK, False),
    ("OTHER-X", 0o701, "other", os.X_OK, True),
    ("ROOT-W", 0o000, "root", os.R_OK | os.W_OK, True),
]


@pytest.mark.parametrize(
    ("mode", "who", "what", "may"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-ACCESS-{name}"))
        for name, *rest in ACCESS
    ],
)
@pytest.mark.case(section="POSIX.1-2024 access(): DESCRIPTION")
def test_access_says_what_the_mode_grants(here, mode, who, what, may):
    """access() checks the file for the accessibility that is asked for, with the real user and group IDs."""
    a_file(here / "f")
    os.chown(here / "f", NOBODY, NOBODY)
    os.chmod(here / "f", mode)
    if who == "root":
        assert os.access(here / "f", what) is may
        return
    ids = {"owner": (NOBODY, 1), "group": (NOBODY + 1, NOBODY), "other": (NOBODY + 1, NOBODY + 1)}
    with as_user(*ids[who]):
        assert os.access(here / "f", what) is may


@pytest.mark.case("PSX-ACCESS-ENOENT", section="POSIX.1-2024 access(): ERRORS")
def test_access_of_what_is_not_there(here):
    """[ENOENT] A component of path does not name an existing file: no access of any kind."""
    assert not os.access(here / "absent", os.F_OK)


@pytest.mark.case("PSX-DIRECTORY-R-WITHOUT-X", section="POSIX.1-2024 File Access Permissions")
def test_a_directory_that_may_be_read_and_not_searched(here):
    """Read permission lists the names; search permission is what reaching a file takes."""
    (here / "d").mkdir()
    a_file(here / "d" / "f", mode=0o666)
    os.chmod(here / "d", 0o744)
    with as_user(NOBODY, NOBODY):
        assert os.listdir(here / "d") == ["f"]
        refused(errno.EACCES, os.stat, here / "d" / "f")


@pytest.mark.case(
    "PSX-DIRECTORY-X-WITHOUT-R", section="POSIX.1-2024 File Access Permissions", kills=("readdir-by-anybody",)
)
def test_a_directory_that_may_be_searched_and_not_read(here):
    """Search permission reaches a file whose name is known; listing takes read permission."""
    (here / "d").mkdir()
    a_file(here / "d" / "f", b"x", 0o666)
    os.chmod(here / "d", 0o711)
    with as_user(NOBODY, NOBODY):
        assert (here / "d" / "f").read_bytes() == b"x"
        refused(errno.EACCES, os.listdir, here / "d")
