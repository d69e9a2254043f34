"""Extended attributes: xattr(7), setxattr(2), getxattr(2), listxattr(2), removexattr(2)."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, run_as_user, skip
from storagetest.agent.testlib.tmpfiles import (
    NO_VALUE_SPACE,
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
        level="MUST", builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-1"), section="setxattr(2): DESCRIPTION"
    ),
]

USER = 54321


SMALLEST_SPACE = 512
"""Bytes of attributes that each file has space for: half of the smallest block of ext4 (xattr(7); chosen)."""


def make_file_with_xattrs(path, **attributes: bytes):
    """Make a file with ``user.`` attributes; skip the case if the file system does not support them.

    Or if they are too many for one block of 1 KiB (xattr(7), Filesystem differences), and so refused.
    """
    make_file(path)
    try:
        for name, value in (attributes or {"x": b"1"}).items():
            os.setxattr(path, f"user.{name}", value)
    except OSError as error:
        if error.errno in NO_VALUE_SPACE and sum(map(len, attributes.values())) > SMALLEST_SPACE:
            skip(f"a file has no space for a value of {len(value)} bytes (setxattr(2)): {error.strerror}")
        if error.errno == errno.EOPNOTSUPP:
            skip("this file system has no user.* attributes, or they are disabled (setxattr(2), ENOTSUP)")
        raise
    return path


def user_attributes(path) -> set:
    return {name for name in os.listxattr(path) if name.startswith("user.")}


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, id=str(size), marks=pytest.mark.case(f"PSX-XATTR-{size}"))
        for size in (0, 1, 255, 2000)
    ],
)
def test_value_is_returned_unchanged(client_dir, size):
    """A value has any bytes and any length, including zero."""
    value = bytes(range(256)) * 8
    make_file_with_xattrs(client_dir / "f", x=value[:size])
    assert os.getxattr(client_dir / "f", "user.x") == value[:size]


@pytest.mark.case("PSX-XATTR-REPLACE-VALUE")
def test_setxattr_replaces_a_value(client_dir):
    """By default setxattr() creates the attribute, or replaces its value if it exists."""
    make_file_with_xattrs(client_dir / "f", x=b"a long first value")
    os.setxattr(client_dir / "f", "user.x", b"short")
    assert os.getxattr(client_dir / "f", "user.x") == b"short"


@pytest.mark.case("PSX-XATTR-REPLACE-LONG", kills=("xattr-long-replaced-in-part",))
def test_setxattr_replaces_a_long_value_by_another(client_dir):
    """A value of more than 1 KiB is replaced as a short one: by a longer one, a shorter one, one as long."""
    path = make_file(client_dir / "f")
    for number, length in enumerate((1300, 1500, 1100, 1100, 1500, 600, 1400)):
        value = (b"%d " % number * length)[:length]
        try:
            os.setxattr(path, "user.long", value)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, *NO_VALUE_SPACE):
                raise
            skip(f"a value of {length} bytes is more than the file system has space for: {error.strerror}")
        found = os.getxattr(path, "user.long")
        assert found == value, f"{len(found)} bytes, {found[-4:]!r} at the end, are not value {number + 1}"


@pytest.mark.case(
    "PSX-XATTR-ONE-BYTE",
    kills=("xattr-compared-in-part", "xattr-tail-compared-only", "xattr-change-shared-by-files"),
)
def test_setxattr_changes_one_byte_of_a_value(client_dir):
    """The value is replaced, also by one of the same length that differs in one byte, wherever that is.

    Another attribute, and the same attribute of another file, keep the value that all three had.
    """
    for length in (1, 4, 9, 16, 64, 200, 400):
        value = (b"storagetest " * 40)[:length]
        make_file_with_xattrs(client_dir / f"{length}", x=value, other=value)
        make_file_with_xattrs(client_dir / f"{length} too", x=value)
        changed = value
        for number, place in enumerate(sorted({0, length // 2, max(0, length - 5), length - 1})):
            changed = changed[:place] + b"#" + changed[place + 1 :]
            flags = os.XATTR_REPLACE if number % 2 else 0
            os.setxattr(client_dir / f"{length}", "user.x", changed, flags)
            found = os.getxattr(client_dir / f"{length}", "user.x")
            assert found == changed, (
                f"byte {place} of a value of {length} bytes was changed to '#'; getxattr() returns "
                f"{found[max(0, place - 8) : place + 8]!r} around it"
            )
        for path, name in ((f"{length}", "user.other"), (f"{length} too", "user.x")):
            found = os.getxattr(client_dir / path, name)
            assert found == value, f"{name} of {path!r} is {found[:40]!r}, after a change of another value"


@pytest.mark.case("PSX-XATTR-CREATE", section="setxattr(2): ERRORS", kills=("xattr-create-ignored",))
def test_xattr_create_of_an_existing_attribute_is_refused(client_dir):
    """[EEXIST] XATTR_CREATE was specified, and the attribute exists already."""
    make_file_with_xattrs(client_dir / "f", x=b"1")
    assert_errno(errno.EEXIST, os.setxattr, client_dir / "f", "user.x", b"2", os.XATTR_CREATE)
    assert os.getxattr(client_dir / "f", "user.x") == b"1"
    os.setxattr(client_dir / "f", "user.y", b"2", os.XATTR_CREATE)


@pytest.mark.case("PSX-XATTR-FLAGS", section="setxattr(2): ERRORS", kills=("xattr-replace-of-empty-refused",))
def test_flags_are_about_whether_the_attribute_exists(client_dir):
    """XATTR_CREATE needs an absent attribute, XATTR_REPLACE one that exists: whatever its value is or was."""
    path = make_file_with_xattrs(client_dir / "f")
    present, removed = (b"", b"1", b"v" * 300), (b"", b"1")
    states = [*((value, True) for value in present), *((value, False) for value in removed)]
    for (old, exists), flag, new in itertools.product(
        states, (os.XATTR_CREATE, os.XATTR_REPLACE), (b"", b"2", b"w" * 300)
    ):
        os.setxattr(path, "user.flags", old)
        if not exists:
            os.removexattr(path, "user.flags")
        refused = errno.EEXIST if exists else errno.ENODATA
        if exists == (flag == os.XATTR_REPLACE):
            os.setxattr(path, "user.flags", new, flag)
            assert os.getxattr(path, "user.flags") == new
        else:
            assert_errno(refused, os.setxattr, path, "user.flags", new, flag)
            assert ("user.flags" in os.listxattr(path)) == exists
            if exists:
                assert os.getxattr(path, "user.flags") == old


@pytest.mark.case(
    "PSX-XATTR-REPLACE",
    section="setxattr(2): ERRORS",
    kills=("xattr-replace-ignored",),
)
def test_xattr_replace_of_an_absent_attribute_is_refused(client_dir):
    """[ENODATA] XATTR_REPLACE was specified, and the attribute does not exist."""
    make_file_with_xattrs(client_dir / "f", x=b"1")
    assert_errno(errno.ENODATA, os.setxattr, client_dir / "f", "user.y", b"2", os.XATTR_REPLACE)
    os.setxattr(client_dir / "f", "user.x", b"2", os.XATTR_REPLACE)
    assert os.getxattr(client_dir / "f", "user.x") == b"2"


@pytest.mark.case(
    "PSX-XATTR-ABSENT",
    section="getxattr(2): ERRORS",
    kills=(
        "xattr-absent-empty",
        "xattr-absent-wrong-errno",
        "xattr-remove-absent-accepted",
        "xattr-remove-absent",
    ),
)
def test_absent_attribute_is_refused(client_dir):
    """[ENODATA] The named attribute does not exist."""
    make_file_with_xattrs(client_dir / "f", x=b"1")
    assert_errno(errno.ENODATA, os.getxattr, client_dir / "f", "user.y")
    assert_errno(errno.ENODATA, os.removexattr, client_dir / "f", "user.y")


@pytest.mark.case(
    "PSX-XATTR-REMOVE",
    section="removexattr(2): DESCRIPTION",
    kills=("xattr-absent-empty", "xattr-absent-wrong-errno", "xattr-not-listed"),
)
def test_removexattr_removes_one_attribute(client_dir):
    """removexattr() removes the attribute of that name, and no other."""
    make_file_with_xattrs(client_dir / "f", x=b"1", y=b"2")
    os.removexattr(client_dir / "f", "user.x")
    assert_errno(errno.ENODATA, os.getxattr, client_dir / "f", "user.x")
    assert user_attributes(client_dir / "f") == {"user.y"}


@pytest.mark.case("PSX-XATTR-LIST", section="listxattr(2): DESCRIPTION", kills=("xattr-not-listed",))
def test_all_attributes_are_listed(client_dir):
    """listxattr() retrieves the list of extended attribute names associated with the path."""
    names = {f"n{number:02}" for number in range(20)}
    make_file_with_xattrs(client_dir / "f", **dict.fromkeys(names, b"v"))
    assert user_attributes(client_dir / "f") == {f"user.{name}" for name in names}


@pytest.mark.case("PSX-XATTR-LIST-EMPTY", section="listxattr(2): DESCRIPTION")
def test_new_file_has_no_user_attributes(client_dir):
    """A new file has no user attributes."""
    make_file_with_xattrs(client_dir / "other")
    assert user_attributes(make_file(client_dir / "f")) == set()


@pytest.mark.case("PSX-XATTR-NAMES", section="xattr(7): DESCRIPTION", kills=("xattr-case-folded",))
def test_attribute_names_are_distinct_strings(client_dir):
    """A name is any string after its namespace: case, Unicode, spaces and dots make a different name.

    A file system may have shorter names than Linux's 255 bytes (setxattr(2): ERANGE).
    """
    names = ["a", "A", "a.b.c", "mit Leerzeichen", "ünïcode-☃"]
    make_file_with_xattrs(client_dir / "f")
    for number, name in enumerate(names):
        os.setxattr(client_dir / "f", f"user.{name}", b"%d" % number)
    try:
        os.setxattr(client_dir / "f", f"user.{'n' * 200}", b"%d" % len(names))
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        record_observation("a name of 205 bytes is refused by ERANGE")
    else:
        names.append("n" * 200)
    assert [os.getxattr(client_dir / "f", f"user.{name}") for name in names] == [
        b"%d" % n for n in range(len(names))
    ]


@pytest.mark.case("PSX-XATTR-NAME-ERANGE", section="setxattr(2): ERRORS")
def test_too_long_attribute_name_is_refused(client_dir):
    """[ERANGE] The size of name exceeds 255 bytes, its namespace included (xattr(7), XATTR_NAME_MAX)."""
    make_file_with_xattrs(client_dir / "f")
    assert_errno(errno.ERANGE, os.setxattr, client_dir / "f", "user." + "n" * 251, b"1")


@pytest.mark.case("PSX-XATTR-VALUE-E2BIG", section="setxattr(2): ERRORS")
def test_too_large_value_is_refused(client_dir):
    """[E2BIG] The size of value exceeds 65536 bytes (XATTR_SIZE_MAX), whatever the file system."""
    make_file_with_xattrs(client_dir / "f")
    assert_errno(errno.E2BIG, os.setxattr, client_dir / "f", "user.x", bytes(65537))


@pytest.mark.case(
    "PSX-XATTR-VALUE-64K", section="xattr(7): Filesystem differences", level="MAY", kills=("xattr-value-cut",)
)
def test_value_of_64_kib_is_kept_or_refused(client_dir):
    """The limit of the system is 64 KiB a value; a file system may have a smaller one."""
    make_file_with_xattrs(client_dir / "f")
    try:
        os.setxattr(client_dir / "f", "user.x", b"v" * 65536)
    except OSError as error:
        assert error.errno in NO_VALUE_SPACE
        record_observation(f"a value of 64 KiB is refused by {errno.errorcode[error.errno]}")
        return
    assert os.getxattr(client_dir / "f", "user.x") == b"v" * 65536


@pytest.mark.case("PSX-XATTR-ERANGE", section="getxattr(2): ERRORS", kills=("xattr-size-not-checked",))
def test_getxattr_checks_the_buffer_size(client_dir):
    """[ERANGE] The buffer is too small for the result; a size of 0 returns the size of the value."""
    path = os.fsencode(make_file_with_xattrs(client_dir / "f", x=b"twelve bytes"))
    library = ctypes.CDLL(None, use_errno=True)
    assert library.getxattr(path, b"user.x", None, 0) == 12
    buffer = ctypes.create_string_buffer(4)
    assert library.getxattr(path, b"user.x", buffer, 4) == -1
    assert ctypes.get_errno() == errno.ERANGE


@pytest.mark.case("PSX-XATTR-DIRECTORY")
def test_directory_can_have_attributes(client_dir):
    """user.* attributes are for regular files and directories."""
    make_file_with_xattrs(client_dir / "f")
    (client_dir / "d").mkdir()
    os.setxattr(client_dir / "d", "user.x", b"of a directory")
    assert os.getxattr(client_dir / "d", "user.x") == b"of a directory"


@pytest.mark.case("PSX-XATTR-SPECIAL", section="xattr(7): User extended attributes")
def test_user_attributes_of_links_and_fifos_are_refused(client_dir):
    """User attributes are allowed only for regular files and directories: others give [EPERM]."""
    make_file_with_xattrs(client_dir / "f")
    symbolic_link("f", client_dir / "link")
    fifo(client_dir / "fifo")
    assert_errno(
        (errno.EPERM, errno.EOPNOTSUPP),
        os.setxattr,
        client_dir / "link",
        "user.x",
        b"1",
        follow_symlinks=False,
    )
    assert_errno((errno.EPERM, errno.EOPNOTSUPP), os.setxattr, client_dir / "fifo", "user.x", b"1")


@pytest.mark.case("PSX-XATTR-FD", section="fsetxattr(2): DESCRIPTION")
def test_attributes_of_an_open_file(client_dir):
    """fsetxattr() and fgetxattr() act on the file of a descriptor."""
    with open_fd(make_file_with_xattrs(client_dir / "f")) as descriptor:
        os.setxattr(descriptor, "user.y", b"2")
        assert os.getxattr(client_dir / "f", "user.y") == b"2"
        assert os.getxattr(descriptor, "user.x") == b"1"


@pytest.mark.case("PSX-XATTR-RENAME", section="xattr(7): DESCRIPTION")
def test_attributes_stay_with_the_file(client_dir):
    """Attributes belong to the file, not to its name: rename and link keep them."""
    make_file_with_xattrs(client_dir / "f", x=b"kept")
    os.rename(client_dir / "f", client_dir / "g")
    hard_link(client_dir / "g", client_dir / "h")
    assert os.getxattr(client_dir / "g", "user.x") == os.getxattr(client_dir / "h", "user.x") == b"kept"


@pytest.mark.case(
    "PSX-XATTR-EACCES", section="xattr(7): User extended attributes", kills=("xattr-by-any-user",)
)
def test_mode_protects_user_attributes(client_dir):
    """The file permission bits define access to user attributes."""
    client_dir.chmod(0o777)
    make_file_with_xattrs(client_dir / "f", x=b"1")
    os.chmod(client_dir / "f", 0o600)
    with run_as_user(USER, USER):
        assert_errno(errno.EACCES, os.getxattr, client_dir / "f", "user.x")
        assert_errno(errno.EACCES, os.setxattr, client_dir / "f", "user.x", b"2")
    os.chmod(client_dir / "f", 0o644)
    with run_as_user(USER, USER):
        assert os.getxattr(client_dir / "f", "user.x") == b"1"
        assert_errno(errno.EACCES, os.setxattr, client_dir / "f", "user.x", b"2")


@pytest.mark.case("PSX-XATTR-CTIME", level="SHOULD", kills=("attributes-stale",))
def test_setxattr_updates_ctime(client_dir):
    """Attributes are metadata of the inode: a change of them is a change of status."""
    before = os.stat(make_file_with_xattrs(client_dir / "f"))
    wait_clock_tick(client_dir)
    os.setxattr(client_dir / "f", "user.x", b"2")
    after = os.stat(client_dir / "f")
    assert after.st_ctime_ns > before.st_ctime_ns
    assert after.st_mtime_ns == before.st_mtime_ns


@pytest.mark.case("PSX-XATTR-NAMESPACE", section="setxattr(2): ERRORS")
def test_unknown_namespace_is_refused(client_dir):
    """[ENOTSUP] The namespace prefix of name is not valid."""
    make_file_with_xattrs(client_dir / "f")
    assert_errno((errno.EOPNOTSUPP, errno.EINVAL), os.setxattr, client_dir / "f", "nonsense.x", b"1")


@pytest.mark.case("PSX-XATTR-TRUSTED", section="xattr(7): Trusted extended attributes", level="MAY")
def test_trusted_attributes_require_privilege(client_dir):
    """Trusted attributes are visible and accessible only to processes that have CAP_SYS_ADMIN."""
    make_file(client_dir / "f", mode=0o666)
    os.setxattr(client_dir / "f", "trusted.x", b"1")
    assert os.getxattr(client_dir / "f", "trusted.x") == b"1"
    with run_as_user(USER, USER):
        assert_errno((errno.ENODATA, errno.EPERM), os.getxattr, client_dir / "f", "trusted.x")
    record_observation("trusted attributes are kept")
