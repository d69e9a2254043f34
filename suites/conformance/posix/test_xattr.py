"""Extended attributes: xattr(7), setxattr(2), getxattr(2), listxattr(2), removexattr(2)."""

from __future__ import annotations

import ctypes
import errno
import os

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, run_as_user, skip
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, wait_clock_tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="setxattr(2): DESCRIPTION"),
]

NOBODY = 54321


def a_file_with(path, **attributes: bytes):
    """Make a file with ``user.`` attributes; it cannot be tried where the file system has none."""
    make_file(path)
    try:
        for name, value in (attributes or {"x": b"1"}).items():
            os.setxattr(path, f"user.{name}", value)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            skip("this file system has no user.* attributes, or they are disabled (setxattr(2), ENOTSUP)")
        raise
    return path


def listed(path) -> set:
    return {name for name in os.listxattr(path) if name.startswith("user.")}


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, id=str(size), marks=pytest.mark.case(f"PSX-XATTR-{size}"))
        for size in (0, 1, 255, 2000)
    ],
)
def test_a_value_is_kept_to_the_byte(client_dir, size):
    """The value is of the given length, of any bytes, and may have zero length."""
    value = bytes(range(256)) * 8
    a_file_with(client_dir / "f", x=value[:size])
    assert os.getxattr(client_dir / "f", "user.x") == value[:size]


@pytest.mark.case("PSX-XATTR-REPLACE-VALUE")
def test_an_attribute_is_replaced(client_dir):
    """By default setxattr() creates the attribute, or replaces its value if it exists."""
    a_file_with(client_dir / "f", x=b"a long first value")
    os.setxattr(client_dir / "f", "user.x", b"short")
    assert os.getxattr(client_dir / "f", "user.x") == b"short"


@pytest.mark.case("PSX-XATTR-CREATE", section="setxattr(2): ERRORS", kills=("xattr-create-ignored",))
def test_xattr_create_of_one_that_exists(client_dir):
    """[EEXIST] XATTR_CREATE was specified, and the attribute exists already."""
    a_file_with(client_dir / "f", x=b"1")
    assert_errno(errno.EEXIST, os.setxattr, client_dir / "f", "user.x", b"2", os.XATTR_CREATE)
    assert os.getxattr(client_dir / "f", "user.x") == b"1"
    os.setxattr(client_dir / "f", "user.y", b"2", os.XATTR_CREATE)


@pytest.mark.case("PSX-XATTR-REPLACE", section="setxattr(2): ERRORS", kills=("xattr-replace-ignored",))
def test_xattr_replace_of_one_that_does_not_exist(client_dir):
    """[ENODATA] XATTR_REPLACE was specified, and the attribute does not exist."""
    a_file_with(client_dir / "f", x=b"1")
    assert_errno(errno.ENODATA, os.setxattr, client_dir / "f", "user.y", b"2", os.XATTR_REPLACE)
    os.setxattr(client_dir / "f", "user.x", b"2", os.XATTR_REPLACE)
    assert os.getxattr(client_dir / "f", "user.x") == b"2"


@pytest.mark.case(
    "PSX-XATTR-ABSENT",
    section="getxattr(2): ERRORS",
    kills=("xattr-absent-empty", "xattr-absent-wrong-errno", "xattr-remove-absent-accepted"),
)
def test_an_attribute_that_is_not_there(client_dir):
    """[ENODATA] The named attribute does not exist."""
    a_file_with(client_dir / "f", x=b"1")
    assert_errno(errno.ENODATA, os.getxattr, client_dir / "f", "user.y")
    assert_errno(errno.ENODATA, os.removexattr, client_dir / "f", "user.y")


@pytest.mark.case(
    "PSX-XATTR-REMOVE",
    section="removexattr(2): DESCRIPTION",
    kills=("xattr-absent-empty", "xattr-absent-wrong-errno", "xattr-not-listed"),
)
def test_a_removed_attribute_is_gone(client_dir):
    """removexattr() removes the attribute of that name, and no other."""
    a_file_with(client_dir / "f", x=b"1", y=b"2")
    os.removexattr(client_dir / "f", "user.x")
    assert_errno(errno.ENODATA, os.getxattr, client_dir / "f", "user.x")
    assert listed(client_dir / "f") == {"user.y"}


@pytest.mark.case("PSX-XATTR-LIST", section="listxattr(2): DESCRIPTION", kills=("xattr-not-listed",))
def test_all_attributes_are_listed(client_dir):
    """listxattr() retrieves the list of extended attribute names associated with the path."""
    names = {f"n{number:02}" for number in range(20)}
    a_file_with(client_dir / "f", **dict.fromkeys(names, b"v"))
    assert listed(client_dir / "f") == {f"user.{name}" for name in names}


@pytest.mark.case("PSX-XATTR-LIST-EMPTY", section="listxattr(2): DESCRIPTION")
def test_a_new_file_has_no_attributes_of_the_users(client_dir):
    """A file that was given none has none."""
    a_file_with(client_dir / "other")
    assert listed(make_file(client_dir / "f")) == set()


@pytest.mark.case("PSX-XATTR-NAMES", section="xattr(7): DESCRIPTION", kills=("xattr-case-folded",))
def test_names_of_many_kinds(client_dir):
    """A name is any string after its namespace: case, Unicode, spaces and dots make it another."""
    names = ["a", "A", "a.b.c", "mit Leerzeichen", "ünïcode-☃", "n" * 200]
    a_file_with(client_dir / "f")
    for number, name in enumerate(names):
        os.setxattr(client_dir / "f", f"user.{name}", b"%d" % number)
    assert [os.getxattr(client_dir / "f", f"user.{name}") for name in names] == [
        b"%d" % n for n in range(len(names))
    ]


@pytest.mark.case("PSX-XATTR-NAME-ERANGE", section="setxattr(2): ERRORS")
def test_a_name_that_is_too_long(client_dir):
    """[ERANGE] The size of name exceeds 255 bytes, its namespace included (xattr(7), XATTR_NAME_MAX)."""
    a_file_with(client_dir / "f")
    assert_errno(errno.ERANGE, os.setxattr, client_dir / "f", "user." + "n" * 251, b"1")


@pytest.mark.case("PSX-XATTR-VALUE-E2BIG", section="setxattr(2): ERRORS")
def test_a_value_that_is_too_large(client_dir):
    """[E2BIG] The size of value exceeds 65536 bytes (XATTR_SIZE_MAX), whatever the file system."""
    a_file_with(client_dir / "f")
    assert_errno(errno.E2BIG, os.setxattr, client_dir / "f", "user.x", bytes(65537))


@pytest.mark.case(
    "PSX-XATTR-VALUE-64K", section="xattr(7): Filesystem differences", level="MAY", kills=("xattr-value-cut",)
)
def test_a_value_of_64_kib(client_dir):
    """The limit of the system is 64 KiB a value; a file system may have a smaller one."""
    a_file_with(client_dir / "f")
    try:
        os.setxattr(client_dir / "f", "user.x", b"v" * 65536)
    except OSError as error:
        assert error.errno in (errno.ENOSPC, errno.E2BIG, errno.ERANGE, errno.EDQUOT)
        record_observation(f"a value of 64 KiB is refused by {errno.errorcode[error.errno]}")
        return
    assert os.getxattr(client_dir / "f", "user.x") == b"v" * 65536


@pytest.mark.case("PSX-XATTR-ERANGE", section="getxattr(2): ERRORS", kills=("xattr-size-not-checked",))
def test_a_buffer_that_is_too_small(client_dir):
    """[ERANGE] The size of the buffer is too small to hold the result; a size of 0 asks for the size."""
    path = os.fsencode(a_file_with(client_dir / "f", x=b"twelve bytes"))
    library = ctypes.CDLL(None, use_errno=True)
    assert library.getxattr(path, b"user.x", None, 0) == 12
    buffer = ctypes.create_string_buffer(4)
    assert library.getxattr(path, b"user.x", buffer, 4) == -1
    assert ctypes.get_errno() == errno.ERANGE


@pytest.mark.case("PSX-XATTR-DIRECTORY")
def test_a_directory_has_attributes(client_dir):
    """user.* attributes are for regular files and directories."""
    a_file_with(client_dir / "f")
    (client_dir / "d").mkdir()
    os.setxattr(client_dir / "d", "user.x", b"of a directory")
    assert os.getxattr(client_dir / "d", "user.x") == b"of a directory"


@pytest.mark.case("PSX-XATTR-SPECIAL", section="xattr(7): User extended attributes")
def test_links_and_fifos_have_no_attributes_of_the_users(client_dir):
    """User attributes are allowed only for regular files and directories: [EPERM] elsewhere."""
    a_file_with(client_dir / "f")
    os.symlink("f", client_dir / "link")
    os.mkfifo(client_dir / "fifo")
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
    """fsetxattr() and fgetxattr() are the same, on the file that a descriptor refers to."""
    with open_fd(a_file_with(client_dir / "f")) as descriptor:
        os.setxattr(descriptor, "user.y", b"2")
        assert os.getxattr(client_dir / "f", "user.y") == b"2"
        assert os.getxattr(descriptor, "user.x") == b"1"


@pytest.mark.case("PSX-XATTR-RENAME", section="xattr(7): DESCRIPTION")
def test_attributes_go_with_the_file(client_dir):
    """Attributes are associated with the file, not with its name: rename and link keep them."""
    a_file_with(client_dir / "f", x=b"kept")
    os.rename(client_dir / "f", client_dir / "g")
    os.link(client_dir / "g", client_dir / "h")
    assert os.getxattr(client_dir / "g", "user.x") == os.getxattr(client_dir / "h", "user.x") == b"kept"


@pytest.mark.case(
    "PSX-XATTR-EACCES", section="xattr(7): User extended attributes", kills=("xattr-by-anybody",)
)
def test_the_mode_guards_attributes(client_dir):
    """The access permissions of user attributes are defined by the file permission bits."""
    client_dir.chmod(0o777)
    a_file_with(client_dir / "f", x=b"1")
    os.chmod(client_dir / "f", 0o600)
    with run_as_user(NOBODY, NOBODY):
        assert_errno(errno.EACCES, os.getxattr, client_dir / "f", "user.x")
        assert_errno(errno.EACCES, os.setxattr, client_dir / "f", "user.x", b"2")
    os.chmod(client_dir / "f", 0o644)
    with run_as_user(NOBODY, NOBODY):
        assert os.getxattr(client_dir / "f", "user.x") == b"1"
        assert_errno(errno.EACCES, os.setxattr, client_dir / "f", "user.x", b"2")


@pytest.mark.case("PSX-XATTR-CTIME", level="SHOULD", kills=("attributes-stale",))
def test_a_change_of_attributes_stamps_the_file(client_dir):
    """Attributes are metadata of the inode: a change of them is a change of status."""
    before = os.stat(a_file_with(client_dir / "f"))
    wait_clock_tick(client_dir)
    os.setxattr(client_dir / "f", "user.x", b"2")
    after = os.stat(client_dir / "f")
    assert after.st_ctime_ns > before.st_ctime_ns
    assert after.st_mtime_ns == before.st_mtime_ns


@pytest.mark.case("PSX-XATTR-NAMESPACE", section="setxattr(2): ERRORS")
def test_a_namespace_that_does_not_exist(client_dir):
    """[ENOTSUP] The namespace prefix of name is not valid."""
    a_file_with(client_dir / "f")
    assert_errno((errno.EOPNOTSUPP, errno.EINVAL), os.setxattr, client_dir / "f", "nonsense.x", b"1")


@pytest.mark.case("PSX-XATTR-TRUSTED", section="xattr(7): Trusted extended attributes", level="MAY")
def test_trusted_attributes_are_the_privileged_processs(client_dir):
    """Trusted attributes are visible and accessible only to processes that have CAP_SYS_ADMIN."""
    make_file(client_dir / "f", mode=0o666)
    os.setxattr(client_dir / "f", "trusted.x", b"1")
    assert os.getxattr(client_dir / "f", "trusted.x") == b"1"
    with run_as_user(NOBODY, NOBODY):
        assert_errno((errno.ENODATA, errno.EPERM), os.getxattr, client_dir / "f", "trusted.x")
    record_observation("trusted attributes are kept")
