"""Attributes and names that one client changes and the other sees at once."""

from __future__ import annotations

import stat
from os import O_APPEND, O_CREAT, O_RDWR, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "layouts", "shared", "two_clients"),
    pytest.mark.case(
        level="MUST", section="Lustre Operations Manual: Lustre Features, POSIX standard compliance"
    ),
]


@pytest.mark.case("LUS-ATTR-01", kills=("attributes-never-expire",))
def test_size_of_an_open_file_is_seen_before_the_close(a, b):
    """stat() on one client shows the size that the other has written and not yet closed."""
    fd = a.open("f", O_CREAT | O_WRONLY)
    assert b.stat("f").size == 0
    for number in range(1, 6):
        a.pwrite(fd, b"x" * 1000, (number - 1) * 1000)
        assert b.stat("f").size == number * 1000


@pytest.mark.case("LUS-ATTR-02", kills=("open-finds-old-data",))
def test_data_of_an_open_file_are_seen_before_the_close(a, b):
    """read() on one client returns what the other has written and not yet closed."""
    writer = a.open("f", O_CREAT | O_RDWR)
    a.pwrite(writer, b"0000")
    reader = b.open("f")
    for number in range(1, 8):
        assert b.pread(reader, 10) == b"%04d" % (number - 1)
        a.pwrite(writer, b"%04d" % number)
    assert b.pread(reader, 10) == b"0007"


@pytest.mark.case("LUS-ATTR-03", kills=("attributes-never-expire",))
def test_mode_is_seen_at_once(a, b):
    """A mode that one client sets is the one that the other shows."""
    a.write_file("f", b"")
    for mode in (0o600, 0o644, 0o751, 0o400):
        assert stat.S_IMODE(b.stat("f").mode) != mode or mode == 0o644
        a.chmod("f", mode)
        assert stat.S_IMODE(b.stat("f").mode) == mode


@pytest.mark.case("LUS-ATTR-04", kills=("attributes-never-expire",))
def test_times_are_seen_at_once(a, b):
    """Times that one client sets are those that the other shows, in whole seconds at least."""
    a.write_file("f", b"")
    b.stat("f")
    a.utime("f", 10**18, 10**18 + 3 * 10**9)
    seen = b.stat("f")
    assert (seen.atime_ns // 10**9, seen.mtime_ns // 10**9) == (10**9, 10**9 + 3)


@pytest.mark.case("LUS-ATTR-05", kills=("attributes-never-expire",))
def test_link_count_is_seen_at_once(a, b):
    """The link count that one client shows follows the links that the other makes and removes."""
    a.write_file("f", b"")
    assert b.stat("f").nlink == 1
    a.link("f", "g")
    assert b.stat("f").nlink == b.stat("g").nlink == 2
    a.unlink("f")
    assert b.stat("g").nlink == 1


@pytest.mark.case("LUS-ATTR-06", kills=("attributes-never-expire",))
def test_fstat_of_an_open_file_shows_the_others_append(a, b):
    """fstat() of a descriptor that stays open shows what the other client appends."""
    a.write_file("f", b"12345")
    fd = a.open("f")
    assert a.fstat(fd).size == 5
    b.write_file("f", b"678", O_APPEND)
    assert a.fstat(fd).size == 8


@pytest.mark.case("LUS-ATTR-07", kills=("open-finds-old-size",))
def test_truncation_is_seen_by_an_open_descriptor(a, b):
    """A descriptor that stays open reads no byte that the other client has cut off."""
    a.write_file("f", b"x" * 10_000)
    fd = a.open("f")
    assert len(a.pread(fd, 20_000)) == 10_000
    b.truncate("f", 100)
    assert a.fstat(fd).size == 100
    assert a.pread(fd, 20_000) == b"x" * 100


@pytest.mark.case("LUS-ATTR-08", kills=("names-never-expire",))
def test_name_that_was_missing_is_found_at_once(a, b):
    """A name that a client looked up in vain is found when the other has created it."""
    for number in range(5):
        assert not b.exists(f"f{number}")
        a.write_file(f"f{number}", b"x")
        assert b.read_file(f"f{number}") == b"x"


@pytest.mark.case("LUS-ATTR-09", kills=("listings-never-expire",))
def test_listing_follows_the_other_client(a, b):
    """A listing shows the names that exist now, with no other client's change missing."""
    names: set[str] = set()
    for number in range(6):
        assert set(b.listdir()) == names
        a.write_file(f"f{number}", b"")
        names.add(f"f{number}")
    a.unlink("f3")
    assert set(b.listdir()) == names - {"f3"}


@pytest.mark.case("LUS-ATTR-10", kills=("directories-never-expire",))
def test_directory_times_and_links_follow_the_other_client(a, b):
    """A directory's link count and modification time show the other client's new subdirectory."""
    a.mkdir("d")
    a.utime("d", 10**18, 10**18)
    before = b.stat("d")
    a.mkdir("d/sub")
    after = b.stat("d")
    assert after.mtime_ns > before.mtime_ns
    assert after.nlink in (before.nlink, before.nlink + 1)


@pytest.mark.case("LUS-ATTR-11", kills=("attributes-never-expire",))
def test_size_never_shrinks_while_the_other_appends(a, b, race):
    """While one client appends, the sizes that the other reads ascend and are whole records."""
    a.write_file("f", b"")
    fd = a.open("f", O_WRONLY | O_APPEND)
    assert b.stat("f").size == 0  # what a client may cache
    _, seen = race([("write", fd, b"x" * 512)] * 60, [("stat", "f")] * 60)
    assert not [one for one in seen if isinstance(one, OSError)]
    sizes = [one["size"] for one in seen]
    assert sizes == sorted(sizes)
    assert all(size % 512 == 0 for size in sizes)
    assert b.stat("f").size == 60 * 512


@pytest.mark.case(
    "LUS-XATTR-01",
    section="xattr(7): DESCRIPTION",
    kills=("xattr-never-expires",),
)
def test_extended_attribute_is_seen_at_once(a, b, attribute):
    """A value that a client has cached is replaced when the other client changes it."""
    for value in (b"one", b"two", b"three"):
        a.call("setxattr", "f", attribute, value)
        assert bytes(b.call("getxattr", "f", attribute)) == value


@pytest.mark.case(
    "LUS-XATTR-02",
    section="xattr(7): DESCRIPTION",
    kills=("xattr-never-expires",),
)
def test_extended_attribute_that_was_missing_is_seen_at_once(a, b, attribute):
    """An attribute that a client has not found is there once the other sets it, and gone once removed."""
    assert attribute not in b.call("listxattr", "f")
    a.call("setxattr", "f", attribute, b"there")
    assert attribute in b.call("listxattr", "f")
    a.call("removexattr", "f", attribute)
    assert attribute not in b.call("listxattr", "f")


@pytest.mark.case(
    "LUS-XATTR-03",
    section="xattr(7): DESCRIPTION",
    kills=("xattr-not-listed",),
)
def test_both_clients_set_attributes_of_one_file(a, b, attribute):
    """Attributes that two clients set are all kept, and both see all."""
    names = [f"{attribute}{number}" for number in range(4)]
    for number, name in enumerate(names):
        (a, b)[number % 2].call("setxattr", "f", name, name.encode())
    for session in (a, b):
        assert [bytes(session.call("getxattr", "f", name)).decode() for name in names] == names
        assert set(names) <= set(session.call("listxattr", "f"))


@pytest.fixture
def attribute(a):
    """Return the name of an extended attribute that the file system stores, of a new file f."""
    a.write_file("f", b"")
    for name in ("user.storagetest", "trusted.storagetest"):
        try:
            a.call("setxattr", "f", f"{name}-probe", b"x")
            a.call("getxattr", "f", f"{name}-probe")
        except OSError:
            continue
        return name
    pytest.skip("this file system stores neither user.* nor trusted.* attributes")


@pytest.mark.case("LUS-ACL-01", section="acl(5); mount.lustre(8), acl", kills=("xattr-never-expires",))
def test_acl_is_seen_at_once(a, b):
    """An access control list that one client sets is the one that the other reads."""
    a.write_file("f", b"")
    for permission in (4, 6):
        acl = _acl(permission)
        try:
            a.call("setxattr", "f", "system.posix_acl_access", acl)
        except OSError as error:
            pytest.skip(f"this file system has no ACLs: {error.strerror}")
        assert bytes(b.call("getxattr", "f", "system.posix_acl_access")) == acl


@pytest.mark.case(
    "LUS-ACL-02",
    section="acl(5): CORRESPONDENCE BETWEEN ACL ENTRIES AND FILE PERMISSION BITS",
    kills=("acl-chmod-keeps-mask",),
)
def test_mode_that_the_other_client_sets_changes_the_mask(a, b):
    """The group bits that one client sets are the mask of the list that the other reads."""
    a.write_file("f", b"")
    try:
        a.call("setxattr", "f", "system.posix_acl_access", _acl(6))
    except OSError as error:
        pytest.skip(f"this file system has no ACLs: {error.strerror}")
    b.chmod("f", 0o644)
    assert bytes(a.call("getxattr", "f", "system.posix_acl_access")) == _acl(6, mask=4)


def _acl(permission, mask=6):
    """Return the extended attribute of an ACL with an entry for user 61234 (linux/posix_acl_xattr.h)."""
    no_id = 0xFFFFFFFF
    entries = [
        (1, 6, no_id),
        (2, permission, 61234),
        (4, 4, no_id),
        (0x10, mask, no_id),
        (0x20, 4, no_id),
    ]
    words = [2, *(word for tag, perm, who in entries for word in (tag | perm << 16, who))]
    return b"".join(word.to_bytes(4, "little") for word in words)
