"""Who may do what: the answer is for the user who asks, each time, and for the mode as it is now."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import assert_errno, run_as_user
from storagetest.agent.testlib.libc import UTIME_NOW, UTIME_OMIT, utimensat
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


SET = (1_200_000_000, 0)
OMITTED, CURRENT = (0, UTIME_OMIT), (0, UTIME_NOW)


@pytest.mark.case(
    "PSX-RIGHTS-UTIMENS-ONE",
    section="POSIX.1-2024 utimensat(): ERRORS [EPERM]",
    kills=("one-time-to-now-by-writer", "one-time-to-now-by-owner-refused"),
)
def test_one_time_is_set_by_the_owner_only(client_dir):
    """[EPERM] Write permission is for both times to the current one; the owner sets each, whatever the mode.

    With UTIME_OMIT for both, permissions do not matter, and nothing changes.
    """
    path = make_file(client_dir / "f", mode=0o666)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    os.chown(path, USER + 1, USER + 1)
    texts = {SET: "a given time", OMITTED: "UTIME_OMIT", CURRENT: "UTIME_NOW"}
    pairs = [
        (one, two)
        for one in texts
        for two in texts
        if (one, two) not in ((CURRENT, CURRENT), (OMITTED, OMITTED))
    ]
    before = os.stat(path)
    with run_as_user(USER, USER):
        for pair in pairs:
            try:
                assert_errno(errno.EPERM, utimensat, path, *pair)
            except AssertionError as error:
                raise AssertionError(
                    f"{texts[pair[0]]} for atime and {texts[pair[1]]} for mtime, by a writer: {error}"
                ) from None
        utimensat(path, OMITTED, OMITTED)
    after = os.stat(path)
    assert (after.st_atime_ns, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_atime_ns, before.st_mtime_ns, before.st_ctime_ns
    ), "calls that were refused, and UTIME_OMIT for both, change a time"  # fmt: skip
    os.chmod(path, 0)
    with run_as_user(USER + 1, USER + 1):
        for pair in pairs:
            try:
                utimensat(path, *pair)
            except OSError as error:
                raise AssertionError(
                    f"{texts[pair[0]]} for atime and {texts[pair[1]]} for mtime, by the owner: {error}"
                ) from None


@pytest.mark.case(
    "PSX-RIGHTS-TRUNCATE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-MAY-EXTRA-GROUP"),
    section="POSIX.1-2024 truncate(): DESCRIPTION",
    kills=("truncate-by-owner-only",),
)
def test_writer_who_is_not_the_owner_sets_the_size(client_dir):
    """truncate() requires write permission for the file, of others as of the group, and not its ownership."""
    for name, mode, groups in (("other", 0o606, ()), ("group", 0o660, (USER + 2,))):
        os.chown(make_file(client_dir / name, b"content", mode), USER + 1, USER + 2)
        with run_as_user(USER, USER, *groups):
            os.truncate(client_dir / name, 3)
            os.truncate(client_dir / name, 5)
        assert (client_dir / name).read_bytes() == b"con\0\0", f"truncate() by a writer, mode {mode:o}"


@pytest.mark.case(
    "PSX-RIGHTS-TRUNCATE-DENIED",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-MAY-EXTRA-GROUP"),
    section="POSIX.1-2024 truncate(): ERRORS",
    kills=("truncate-by-owner-unchecked", "truncate-by-others-unchecked"),
)
def test_size_is_not_set_without_write_permission(client_dir):
    """[EACCES] Write permission is denied: to the owner, to the group or to others; another class has it."""
    for name, mode, user, groups in (
        ("owner", 0o444, USER + 1, ()),
        ("owner-alone", 0o466, USER + 1, (USER + 2,)),
        ("group", 0o646, USER, (USER + 2,)),
        ("other", 0o664, USER, ()),
        ("none", 0o000, USER + 1, ()),
    ):
        path = make_file(client_dir / name, b"content", mode)
        os.chown(path, USER + 1, USER + 2)
        before = os.stat(path)
        with run_as_user(user, USER + 7, *groups):
            for size in (0, 3, 7, 100):
                try:
                    os.truncate(path, size)
                except OSError as error:
                    assert error.errno == errno.EACCES, (
                        f"truncate() of a file of mode {mode:o}, {name}: {error.strerror}; required: EACCES"
                    )
                else:
                    raise AssertionError(
                        f"truncate() to {size} bytes of a file of mode {mode:o} ({name}) succeeds; required: "
                        "EACCES without write permission"
                    )
        after = os.stat(path)
        assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns), (
            f"truncate() of a file of mode {mode:o} is refused, and yet changes it"
        )
        assert path.read_bytes() == b"content", f"truncate() is refused, and yet changes data, mode {mode:o}"


@pytest.mark.case(
    "PSX-RIGHTS-READ-ONLY",
    section="POSIX.1-2024 unlink(), rename(): DESCRIPTION",
    kills=("others-read-only-kept",),
)
def test_read_only_file_of_another_user_is_replaced_and_removed(client_dir):
    """Write permission for the directory is enough, if it has no sticky bit."""
    client_dir.chmod(0o777)
    for name in ("removed", "replaced"):
        make_file(client_dir / name, mode=0o400)
    with run_as_user(USER, USER):
        os.unlink(client_dir / "removed")
        os.rename(make_file(client_dir / "mine", b"mine"), client_dir / "replaced")
    assert os.listdir(client_dir) == ["replaced"]
    assert (client_dir / "replaced").read_bytes() == b"mine"


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


GROUP = 54400
WHO = {
    "the owner": (USER, GROUP + 9),
    "a member of the group": (USER + 1, GROUP),
    "a member by a supplementary group": (USER + 2, GROUP + 1, GROUP + 2, GROUP),
    "another user": (USER + 3, GROUP + 3),
}
SHIFTS = {
    "the owner": 6,
    "a member of the group": 3,
    "a member by a supplementary group": 3,
    "another user": 0,
}


def only(who, bits):
    """Return a mode that gives ``who`` these bits, and the other two classes all that he has not."""
    return 0o111 * (7 - bits) & ~(7 << SHIFTS[who]) | bits << SHIFTS[who]


def refused(call, *arguments, **named):
    """Return whether a call is refused with EACCES; other errors are raised."""
    try:
        result = call(*arguments, **named)
    except PermissionError as error:
        if error.errno != errno.EACCES:
            raise
        return True
    if isinstance(result, int) and not isinstance(result, bool):
        os.close(result)
    return False


def wrong_right(who, allowed, tries):
    """Make each (name, needed bits, call); return the first with another result, or ""."""
    for name, needed, call, *arguments in tries:
        granted = not refused(call, *arguments)
        if granted is not (needed & allowed == needed):
            return f"{name} is {'granted to' if granted else 'refused to'} {who} by bits {allowed:03b}"
    return ""


@pytest.mark.case(
    "PSX-RIGHTS-DIRECTORY-MATRIX",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-MAY-EXTRA-GROUP"),
    kills=("create-no-groups", "list-by-search"),
)
def test_each_class_has_the_rights_of_its_bits_in_a_directory(client_dir):
    """Owner, group, supplementary group or others: reading, searching and writing are by their bits alone."""
    directory = client_dir / "d"
    directory.mkdir()
    make_file(directory / "inside", b"x", 0o666)
    os.chown(directory, USER, GROUP)
    for who, (user, group, *more) in WHO.items():
        for bits in (0, 1, 2, 3, 4, 5, 6, 7):
            os.chmod(directory, only(who, bits))
            tries = [
                ("listing", 4, os.listdir, directory),
                ("looking up a file", 1, os.stat, directory / "inside"),
                ("making a directory", 3, os.mkdir, directory / "new"),
                ("making a file", 3, os.open, directory / "file", os.O_CREAT | os.O_EXCL | os.O_WRONLY),
            ]
            if bits & 3 == 3:
                tries += [
                    ("renaming a file", 3, os.rename, directory / "file", directory / "renamed"),
                    ("removing a file", 3, os.unlink, directory / "renamed"),
                    ("removing a directory", 3, os.rmdir, directory / "new"),
                ]
            else:
                tries += [
                    ("renaming a file", 3, os.rename, directory / "inside", directory / "renamed"),
                    ("removing a file", 3, os.unlink, directory / "inside"),
                ]
            with run_as_user(user, group, *more):
                assert wrong_right(who, bits, tries) == ""


@pytest.mark.case(
    "PSX-RIGHTS-MANY-GROUPS",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-MAY-EXTRA-GROUP"),
    section="POSIX.1-2024 File Access Permissions; getgroups(): DESCRIPTION",
    kills=("groups-after-16-ignored",),
)
def test_each_of_many_supplementary_groups_gives_its_rights(client_dir):
    """The group of the file is one of the process's, whichever of 40 supplementary groups it is."""
    groups = range(GROUP, GROUP + 40)
    path = make_file(client_dir / "f", b"x", 0o640)
    refused = []
    for number, group in enumerate(groups, 1):
        os.chown(path, USER, group)
        try:
            with run_as_user(USER + 1, USER + 1, *groups):
                os.close(os.open(path, os.O_RDONLY))
        except PermissionError:
            refused.append(number)
    assert not refused, (
        f"of 40 supplementary groups, {len(refused)} give no right, from number {refused[0]} on"
    )


@pytest.mark.case(
    "PSX-RIGHTS-FILE-MATRIX",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-MAY-EXTRA-GROUP"),
    section="POSIX.1-2024 access(): DESCRIPTION; File Access Permissions",
    kills=("access-no-groups", "access-always"),
)
def test_each_class_has_the_rights_of_its_bits_of_a_file(client_dir):
    """Owner, group, supplementary group or others: access() is by their bits alone, and so is open().

    A server may let the owner open his file whatever its mode (RFC 1813 4.4): open() is for the others.
    """
    path = make_file(client_dir / "f", b"x")
    os.chown(path, USER, GROUP)
    for who, (user, group, *more) in WHO.items():
        for bits in (0, 1, 2, 4, 6, 7):
            os.chmod(path, only(who, bits))
            with run_as_user(user, group, *more):
                found = sum(bit for bit in (os.R_OK, os.W_OK, os.X_OK) if os.access(path, bit))
                assert found == bits, f"access() grants bits {found:03b} to {who}, who has {bits:03b}"
                if who != "the owner":
                    tries = [
                        ("reading", 4, os.open, path, os.O_RDONLY),
                        ("writing", 2, os.open, path, os.O_WRONLY),
                        ("reading and writing", 6, os.open, path, os.O_RDWR),
                    ]
                    assert wrong_right(who, bits, tries) == ""


@pytest.mark.case(
    "PSX-RIGHTS-CHMOD-DIRECTORIES",
    section="POSIX.1-2024 chmod(): DESCRIPTION",
    kills=("chmod-directory-sgid-sticky",),
)
def test_bits_of_a_directory_are_set_together_as_one_by_one(client_dir):
    """chmod() sets S_ISGID and S_ISVTX of a directory together, where it sets each of them alone."""
    path = client_dir / "d"
    path.mkdir()

    def mode_after(mode):
        os.chmod(path, mode)
        return stat.S_IMODE(os.stat(path).st_mode)

    kept = (mode_after(0o1777) | mode_after(0o2777)) & 0o3000
    for special in (0o1000, 0o2000, 0o3000, 0):
        for mode in (0o777, 0o755, 0o700, 0o111, 0):
            wanted = special & kept | mode
            found = mode_after(special | mode)
            assert found == wanted, f"chmod() to {special | mode:o} of a directory gives {found:o}"
