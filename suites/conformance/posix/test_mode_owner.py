"""chmod(), chown() and access(): permissions, mode bits kept and mode bits cleared."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, run_as_user, skip
from storagetest.agent.testlib.tmpfiles import (
    make_file,
    open_fd,
    set_id_mode,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]
chmod = "POSIX.1-2024 chmod(): DESCRIPTION"
chmod_errors = "POSIX.1-2024 chmod(): ERRORS"
chown = "POSIX.1-2024 chown(): DESCRIPTION"
chown_errors = "POSIX.1-2024 chown(): ERRORS"

USER = 54321


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
def test_chmod_sets_all_bits(client_dir, mode):
    """chmod() shall change S_ISUID, S_ISGID, S_ISVTX and the permission bits to those of mode."""
    make_file(client_dir / "f")
    os.chmod(client_dir / "f", mode)
    assert mode_of(client_dir / "f") == set_id_mode(client_dir / "f", mode)


@pytest.mark.case("PSX-CHMOD-FILE-SET-IDS", section=chmod, level="MAY", kills=("mode-bits-dropped",))
def test_chmod_keeps_the_set_id_bits_of_a_file(client_dir):
    """chmod() shall change S_ISUID and S_ISGID, unless a restriction of the implementation ignores them."""
    make_file(client_dir / "f")
    kept = {}
    for mode in (0o4711, 0o2711, 0o6711):
        os.chmod(client_dir / "f", mode)
        kept[f"{mode:o}"] = f"{mode_of(client_dir / 'f'):o}"
    assert all(mode == left for mode, left in kept.items()), f"what chmod() leaves of each mode: {kept}"


@pytest.mark.case("PSX-CHMOD-DIRECTORY", section=chmod)
def test_chmod_keeps_the_special_bits_of_a_directory(client_dir):
    """chmod() accepts a directory; its set-group-ID and sticky bits are kept."""
    (client_dir / "d").mkdir()
    for mode in (0o700, 0o1777, 0o2775, 0o755):
        os.chmod(client_dir / "d", mode)
        assert mode_of(client_dir / "d") == mode


@pytest.mark.case("PSX-CHMOD-FOLLOWS", section=chmod)
def test_chmod_follows_links(client_dir):
    """chmod() acts on the file that a symbolic link names."""
    make_file(client_dir / "f", mode=0o644)
    symbolic_link("f", client_dir / "link")
    os.chmod(client_dir / "link", 0o600)
    assert mode_of(client_dir / "f") == 0o600


@pytest.mark.case("PSX-CHMOD-FCHMOD", section="POSIX.1-2024 fchmod(): DESCRIPTION")
def test_fchmod_acts_on_an_open_file(client_dir):
    """fchmod() changes the file of the descriptor, also if it was removed."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        os.fchmod(descriptor, 0o640)
        assert mode_of(client_dir / "f") == 0o640
        os.unlink(client_dir / "f")
        os.fchmod(descriptor, 0o600)
        assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o600


@pytest.mark.case("PSX-CHMOD-CTIME", section=chmod, kills=("chmod-ctime-not-moved",))
def test_chmod_updates_ctime_only(client_dir):
    """Upon success the last file status change time stamp is marked for update, and no other."""
    before = os.stat(make_file(client_dir / "f"))
    wait_clock_tick(client_dir)
    os.chmod(client_dir / "f", 0o600)
    after = os.stat(client_dir / "f")
    assert after.st_ctime_ns > before.st_ctime_ns
    assert after.st_mtime_ns == before.st_mtime_ns


@pytest.mark.case("PSX-CHMOD-EPERM", section=chmod_errors, kills=("chmod-by-any-user",))
def test_chmod_by_another_user_is_refused(client_dir):
    """[EPERM] The effective user ID does not match the owner, and the process is not privileged."""
    client_dir.chmod(0o777)
    make_file(client_dir / "f", mode=0o666)
    with run_as_user(USER, USER):
        assert_errno(errno.EPERM, os.chmod, client_dir / "f", 0o600)
    assert mode_of(client_dir / "f") == 0o666


@pytest.mark.case("PSX-CHMOD-OWNER", section=chmod)
def test_owner_may_chmod_without_permission_bits(client_dir):
    """chmod() requires ownership only: the permission bits do not matter."""
    make_file(client_dir / "f")
    os.chown(client_dir / "f", USER, USER)
    os.chmod(client_dir / "f", 0)
    with run_as_user(USER, USER):
        os.chmod(client_dir / "f", 0o640)
    assert mode_of(client_dir / "f") == 0o640


@pytest.mark.case("PSX-CHMOD-SETGID-CLEARED", section=chmod, kills=("setgid-kept-on-chmod",))
def test_set_group_id_is_cleared_for_a_foreign_group(client_dir):
    """If an unprivileged process is not in the file's group, chmod() shall clear S_ISGID."""
    make_file(client_dir / "f")
    os.chown(client_dir / "f", USER, USER + 1)
    with run_as_user(USER, USER):
        os.chmod(client_dir / "f", 0o2755)
    assert mode_of(client_dir / "f") == 0o755


@pytest.mark.case(
    "PSX-CHMOD-SETGID-MEMBER",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-MAY-EXTRA-GROUP"),
    section=chmod,
    kills=("setgid-refused-to-member",),
)
def test_set_group_id_is_set_by_a_member_of_the_group(client_dir):
    """S_ISGID stays if the file's group is the effective or a supplementary one of the process."""
    for name, group, groups in (
        ("effective", USER, (USER, USER)),
        ("supplementary", USER + 1, (USER, USER, USER + 1)),
    ):
        make_file(client_dir / name)
        expected = set_id_mode(client_dir / name, 0o2755)
        os.chown(client_dir / name, USER, group)
        with run_as_user(*groups):
            os.chmod(client_dir / name, 0o2755)
        assert mode_of(client_dir / name) == expected, f"the file's group is the {name} one of the process"


@pytest.mark.case("PSX-CHMOD-STICKY-FILE", section=chmod_errors, level="MAY", kills=("chmod-ignored",))
def test_sticky_bit_of_a_file_without_privilege(client_dir):
    """An implementation may refuse or ignore S_ISVTX on a file of an unprivileged process; Linux sets it."""
    make_file(client_dir / "f")
    os.chown(client_dir / "f", USER, USER)
    with run_as_user(USER, USER):
        os.chmod(client_dir / "f", 0o1644)
    record_observation(f"the mode becomes {mode_of(client_dir / 'f'):o}")
    assert mode_of(client_dir / "f") == 0o1644


@pytest.mark.case("PSX-CHMOD-OPEN-STAYS", section=chmod, level="SHOULD", kills=("open-truncates",))
def test_open_descriptor_keeps_its_permission(client_dir):
    """A descriptor keeps its permission after a chmod(): the effect is implementation-defined."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER), open_fd(make_file(client_dir / "f", b"x", 0o600)) as descriptor:
        os.chmod(client_dir / "f", 0)
        assert os.pread(descriptor, 1, 0) == b"x"
        assert os.pwrite(descriptor, b"y", 0) == 1
        os.fsync(descriptor)
    assert (client_dir / "f").read_bytes() == b"y"


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
def test_chown_sets_owner_and_group(client_dir, user, group):
    """The user ID and group ID shall be set; the value -1 leaves the corresponding ID as it is."""
    make_file(client_dir / "f")
    os.chown(client_dir / "f", 7, 8)
    os.chown(client_dir / "f", user, group)
    found = os.stat(client_dir / "f")
    assert (found.st_uid, found.st_gid) == (7 if user == -1 else user, 8 if group == -1 else group)


@pytest.mark.case("PSX-CHOWN-LCHOWN", section="POSIX.1-2024 lchown(): DESCRIPTION", kills=("chown-ignored",))
def test_lchown_changes_the_link(client_dir):
    """lchown() of a symbolic link changes the link's own ownership, not that of the file."""
    make_file(client_dir / "f")
    symbolic_link("f", client_dir / "link")
    try:
        os.lchown(client_dir / "link", USER, USER)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        skip("the owner of a symbolic link cannot be set (lchown(), EOPNOTSUPP)")
    assert os.lstat(client_dir / "link").st_uid == USER
    assert os.stat(client_dir / "f").st_uid == 0


@pytest.mark.case("PSX-CHOWN-FOLLOWS", section=chown, kills=("chown-ignored",))
def test_chown_follows_links(client_dir):
    """chown() acts on the file that a symbolic link names."""
    make_file(client_dir / "f")
    symbolic_link("f", client_dir / "link")
    os.chown(client_dir / "link", USER, USER)
    assert os.stat(client_dir / "f").st_uid == USER
    assert os.lstat(client_dir / "link").st_uid == 0


@pytest.mark.case("PSX-CHOWN-CTIME", section=chown, kills=("chown-ctime-not-moved", "chown-ignored"))
def test_chown_updates_ctime(client_dir):
    """Upon success the last file status change time stamp is marked for update."""
    before = os.stat(make_file(client_dir / "f"))
    wait_clock_tick(client_dir)
    os.chown(client_dir / "f", USER, USER)
    after = os.stat(client_dir / "f")
    assert after.st_ctime_ns > before.st_ctime_ns
    assert after.st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            "chmod",
            marks=pytest.mark.case("PSX-CHMOD-CTIME-SAME", section=chmod, kills=("same-mode-keeps-ctime",)),
        ),
        pytest.param(
            "chown",
            marks=pytest.mark.case("PSX-CHOWN-CTIME-SAME", section=chown, kills=("same-owner-keeps-ctime",)),
        ),
    ],
)
def test_a_change_to_the_same_value_updates_ctime(client_dir, name):
    """Upon success the last file status change time stamp is marked, also if the value stays the same."""
    call, values = {"chmod": (os.chmod, (0o640,)), "chown": (os.chown, (USER, USER))}[name]
    call(make_file(client_dir / "f"), *values)
    for number in range(2):
        before = os.stat(client_dir / "f")
        wait_clock_tick(client_dir)
        call(client_dir / "f", *values)
        after = os.stat(client_dir / "f")
        assert after.st_ctime_ns > before.st_ctime_ns, (
            f"{name}(), call {number + 2} with the same value: st_ctime is {after.st_ctime_ns} ns and was "
            f"{before.st_ctime_ns} ns"
        )
        assert after.st_mtime_ns == before.st_mtime_ns, "st_mtime has changed, and no data were written"


@pytest.mark.case("PSX-CHOWN-USER-AGAIN", section=chown, kills=("second-chown-clears-group",))
def test_chown_leaves_the_other_id_each_time(client_dir):
    """The value -1 leaves the corresponding ID as it is, in each of several calls."""
    make_file(client_dir / "f")
    os.chown(client_dir / "f", 7, 8)
    for number in range(1, 4):
        os.chown(client_dir / "f", 70 + number, -1)
        found = os.stat(client_dir / "f")
        assert (found.st_uid, found.st_gid) == (70 + number, 7 + number), (
            f"chown({70 + number}, -1), call {number}: owner and group are {found.st_uid} and "
            f"{found.st_gid}; the group was {7 + number}"
        )
        os.chown(client_dir / "f", -1, 8 + number)
        found = os.stat(client_dir / "f")
        assert (found.st_uid, found.st_gid) == (70 + number, 8 + number), (
            f"chown(-1, {8 + number}), call {number}: owner and group are {found.st_uid} and "
            f"{found.st_gid}; the owner was {70 + number}"
        )


@pytest.mark.case("PSX-CHOWN-EPERM-GIVE", section=chown_errors, kills=("chown-by-any-user", "chown-ignored"))
def test_owner_cannot_give_a_file_away(client_dir):
    """[EPERM] _POSIX_CHOWN_RESTRICTED: only a privileged process changes the user ID."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER):
        make_file(client_dir / "f")
        assert_errno(errno.EPERM, os.chown, client_dir / "f", USER + 1, -1)
    assert os.stat(client_dir / "f").st_uid == USER


@pytest.mark.case("PSX-CHOWN-EPERM-TAKE", section=chown_errors, kills=("chown-by-any-user", "chown-ignored"))
def test_chown_by_another_user_is_refused(client_dir):
    """[EPERM] The effective user ID does not match the owner, and the process is not privileged."""
    client_dir.chmod(0o777)
    make_file(client_dir / "f", mode=0o666)
    with run_as_user(USER, USER):
        assert_errno(errno.EPERM, os.chown, client_dir / "f", USER, -1)
        assert_errno(errno.EPERM, os.chown, client_dir / "f", -1, USER)
    assert os.stat(client_dir / "f").st_uid == 0


@pytest.mark.case(
    "PSX-CHOWN-EPERM-GROUP",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-MAY-EXTRA-GROUP"),
    section=chown_errors,
    kills=("chown-by-any-user", "chown-minus-one", "groups-ignored"),
)
def test_chown_to_a_foreign_group_is_refused(client_dir):
    """[EPERM] The owner may change the group only to one of the process's groups."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER, USER + 1):
        make_file(client_dir / "f")
        os.chown(client_dir / "f", -1, USER + 1)
        assert_errno(errno.EPERM, os.chown, client_dir / "f", -1, USER + 2)
    assert os.stat(client_dir / "f").st_gid == USER + 1


@pytest.mark.case(
    "PSX-CHOWN-CLEARS-SUID",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-MAY-EXTRA-GROUP"),
    section=chown,
    kills=("chown-ignored", "chown-minus-one", "setuid-kept-on-chown"),
)
def test_unprivileged_chown_clears_set_id_bits(client_dir):
    """Of a regular file with execute bits, both bits shall be cleared when the process is not privileged."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER, USER + 1):
        make_file(client_dir / "f", mode=0o755)
        os.chmod(client_dir / "f", 0o6755)
        os.chown(client_dir / "f", -1, USER + 1)
    left = mode_of(client_dir / "f") & 0o6000
    assert not left, f"set-ID bits {left:#o} stay after chown() of the group by the owner"


@pytest.mark.case(
    "PSX-CHOWN-CLEARS-SUID-SAME",
    builds_on=("PSX-CHOWN-CLEARS-SUID",),
    section=chown,
    kills=("setuid-kept-on-same-owner",),
)
def test_unprivileged_chown_to_the_same_owner_clears_set_id_bits(client_dir):
    """The bits are cleared upon successful return, whether or not an ID changes: owner, group, both."""
    client_dir.chmod(0o777)
    found = {}
    with run_as_user(USER, USER):
        for name, ids in {"owner": (USER, -1), "group": (-1, USER), "both": (USER, USER)}.items():
            make_file(client_dir / name, mode=0o755)
            os.chmod(client_dir / name, 0o6755)
            os.chown(client_dir / name, *ids)
            found[name] = mode_of(client_dir / name) & 0o6000
    assert not any(found.values()), f"set-ID bits that stay after chown() to the same: {found}"


@pytest.mark.case("PSX-CHOWN-CLEARS-SUID-ROOT", section=chown, level="MAY", kills=("chown-ignored",))
def test_privileged_chown_may_clear_set_id_bits(client_dir):
    """Whether a privileged chown() clears the bits is implementation-defined; Linux clears them."""
    make_file(client_dir / "f", mode=0o755)
    os.chmod(client_dir / "f", 0o6755)
    os.chown(client_dir / "f", USER, USER)
    assert mode_of(client_dir / "f") & 0o6000 == 0


@pytest.mark.case("PSX-WRITE-CLEARS-SUID", section="POSIX.1-2024 write(): DESCRIPTION")
def test_unprivileged_write_clears_set_id_bits(client_dir):
    """A write may clear S_ISUID and S_ISGID; Linux clears them for a process without CAP_FSETID."""
    make_file(client_dir / "f", mode=0o777)
    os.chmod(client_dir / "f", 0o6777)
    client_dir.chmod(0o777)
    with run_as_user(USER, USER), open_fd(client_dir / "f", os.O_WRONLY) as descriptor:
        os.write(descriptor, b"x")
        os.fsync(descriptor)
    record_observation(f"the mode becomes {mode_of(client_dir / 'f'):o}")
    assert mode_of(client_dir / "f") & 0o1777 == 0o777


ACCESS = [
    # mode, class of the process, access, whether it is granted
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
    ("mode", "user", "access", "granted"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-ACCESS-{name}"))
        for name, *rest in ACCESS
    ],
)
@pytest.mark.case(section="POSIX.1-2024 access(): DESCRIPTION")
def test_access_follows_the_mode(client_dir, mode, user, access, granted):
    """access() checks the requested access with the real user and group IDs."""
    make_file(client_dir / "f")
    os.chown(client_dir / "f", USER, USER)
    os.chmod(client_dir / "f", mode)
    if user == "root":
        assert os.access(client_dir / "f", access) is granted
        return
    ids = {"owner": (USER, 1), "group": (USER + 1, USER), "other": (USER + 1, USER + 1)}
    with run_as_user(*ids[user]):
        assert os.access(client_dir / "f", access) is granted


@pytest.mark.case("PSX-ACCESS-ENOENT", section="POSIX.1-2024 access(): ERRORS")
def test_access_of_an_absent_file(client_dir):
    """[ENOENT] A component of path does not name an existing file: no access of any kind."""
    assert not os.access(client_dir / "absent", os.F_OK)


@pytest.mark.case("PSX-DIRECTORY-R-WITHOUT-X", section="POSIX.1-2024 File Access Permissions")
def test_directory_with_read_and_without_search_permission(client_dir):
    """Read permission lists names; access to a file requires search permission."""
    (client_dir / "d").mkdir()
    make_file(client_dir / "d" / "f", mode=0o666)
    os.chmod(client_dir / "d", 0o744)
    with run_as_user(USER, USER):
        assert os.listdir(client_dir / "d") == ["f"]
        assert_errno(errno.EACCES, os.stat, client_dir / "d" / "f")


@pytest.mark.case(
    "PSX-DIRECTORY-X-WITHOUT-R",
    section="POSIX.1-2024 File Access Permissions",
    kills=("readdir-by-any-user",),
)
def test_directory_with_search_and_without_read_permission(client_dir):
    """Search permission gives access to a file by its name; listing requires read permission."""
    (client_dir / "d").mkdir()
    make_file(client_dir / "d" / "f", b"x", 0o666)
    os.chmod(client_dir / "d", 0o711)
    with run_as_user(USER, USER):
        assert (client_dir / "d" / "f").read_bytes() == b"x"
        assert_errno(errno.EACCES, os.listdir, client_dir / "d")
