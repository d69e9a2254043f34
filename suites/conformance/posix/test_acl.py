"""POSIX access control lists, through their attributes (acl(5), after IEEE 1003.1e draft 17)."""

from __future__ import annotations

import errno
import os
import stat
import struct

import pytest

from storagetest.agent.testlib import as_user, lacks, refused
from storagetest.agent.testlib.tmpfiles import a_file

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="acl(5): ACCESS CHECK ALGORITHM"),
]
mode_bits = "acl(5): CORRESPONDENCE BETWEEN ACL ENTRIES AND FILE PERMISSION BITS"
default = "acl(5): OBJECT CREATION AND DEFAULT ACLs"

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
ANY = 0xFFFFFFFF
TAGS = {"u": 0x01, "user": 0x02, "g": 0x04, "group": 0x08, "mask": 0x10, "o": 0x20}  # <linux/posix_acl.h>
READER, OTHER, TEAM = 54321, 54322, 54400


def packed(*entries) -> bytes:
    """Return the attribute's value: version 2, then tag, permissions and ID of each entry, little-endian."""
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", TAGS[tag], bits, who) for tag, bits, who in entries
    )


def unpacked(value: bytes):
    names = {number: tag for tag, number in TAGS.items()}
    return [(names[tag], bits, who) for tag, bits, who in struct.iter_unpack("<HHI", value[4:])]


def set_acl(path, *entries, kind: str = ACCESS) -> None:
    """Set an ACL; it cannot be tried where there are none."""
    try:
        os.setxattr(path, kind, packed(*entries))
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            lacks("there are no POSIX ACLs on this mount (setxattr(2), ENOTSUP)")
        raise


BASE = (("u", 6, ANY), ("user", 4, READER), ("g", 0, ANY), ("mask", 6, ANY), ("o", 0, ANY))


@pytest.mark.case("PSX-ACL-KEPT", section="acl(5): ACL ENTRIES", kills=("acl-ignored",))
def test_an_acl_is_kept(here):
    """What was set is what is returned, entry by entry."""
    set_acl(a_file(here / "f"), *BASE)
    assert unpacked(os.getxattr(here / "f", ACCESS)) == list(BASE)


@pytest.mark.case("PSX-ACL-NAMED-USER", kills=("acl-default-grants",))
def test_a_named_user_gets_what_his_entry_grants(here):
    """If the effective user ID matches a named user entry, that entry and the mask decide."""
    set_acl(a_file(here / "f", b"x"), *BASE)
    with as_user(READER, OTHER):
        assert (here / "f").read_bytes() == b"x"
        refused(errno.EACCES, os.open, here / "f", os.O_WRONLY)
    with as_user(OTHER, OTHER):
        refused(errno.EACCES, os.open, here / "f", os.O_RDONLY)


@pytest.mark.case("PSX-ACL-NAMED-GROUP", kills=("acl-default-grants", "acl-ignored", "groups-ignored"))
def test_a_named_group_gets_what_its_entry_grants(here):
    """If a group of the process matches a named group entry that grants it, access is granted."""
    entries = (("u", 6, ANY), ("g", 0, ANY), ("group", 4, TEAM), ("mask", 4, ANY), ("o", 0, ANY))
    set_acl(a_file(here / "f", b"x"), *entries)
    with as_user(OTHER, OTHER, TEAM):
        assert (here / "f").read_bytes() == b"x"
    with as_user(OTHER, OTHER):
        refused(errno.EACCES, os.open, here / "f", os.O_RDONLY)


@pytest.mark.case("PSX-ACL-MASK", kills=("acl-default-grants",))
def test_the_mask_limits_named_entries(here):
    """The mask entry denotes the maximum that named users, the group and named groups are granted."""
    entries = (("u", 6, ANY), ("user", 6, READER), ("g", 6, ANY), ("mask", 4, ANY), ("o", 0, ANY))
    set_acl(a_file(here / "f", b"x"), *entries)
    with as_user(READER, OTHER):
        assert (here / "f").read_bytes() == b"x"
        refused(errno.EACCES, os.open, here / "f", os.O_WRONLY)


@pytest.mark.case("PSX-ACL-DENY", kills=("acl-ignored",))
def test_a_named_user_entry_is_not_topped_up_by_others(here):
    """Where an entry matches that does not grant it, access is denied, whatever others may do."""
    entries = (("u", 6, ANY), ("user", 0, READER), ("g", 4, ANY), ("mask", 4, ANY), ("o", 4, ANY))
    set_acl(a_file(here / "f", b"x"), *entries)
    with as_user(READER, READER):
        refused(errno.EACCES, os.open, here / "f", os.O_RDONLY)
    with as_user(OTHER, OTHER):
        assert (here / "f").read_bytes() == b"x"


@pytest.mark.case("PSX-ACL-MODE", section=mode_bits, kills=("acl-ignored",))
def test_the_group_bits_of_the_mode_show_the_mask(here):
    """With a mask entry, the group class bits of the mode correspond to it."""
    set_acl(a_file(here / "f"), *BASE)
    assert stat.S_IMODE(os.stat(here / "f").st_mode) == 0o660


@pytest.mark.case("PSX-ACL-CHMOD", section=mode_bits, kills=("acl-ignored",))
def test_chmod_changes_the_mask(here):
    """Modification of the file permission bits results in the modification of the associated entries."""
    set_acl(a_file(here / "f"), *BASE)
    os.chmod(here / "f", 0o640)
    entries = unpacked(os.getxattr(here / "f", ACCESS))
    assert ("mask", 4, ANY) in entries
    assert ("g", 0, ANY) in entries


@pytest.mark.case("PSX-ACL-MINIMAL", section=mode_bits, kills=("acl-ignored",))
def test_an_acl_of_three_entries_is_the_mode(here):
    """A minimal ACL has three entries, and they are the permission bits."""
    a_file(here / "f")
    set_acl(here / "f", ("u", 6, ANY), ("g", 4, ANY), ("o", 0, ANY))
    assert stat.S_IMODE(os.stat(here / "f").st_mode) == 0o640


@pytest.mark.case("PSX-ACL-INVALID", section="acl(5): VALID ACLs")
def test_an_acl_that_is_not_valid(here):
    """[EINVAL] Named entries want a mask; owner, group and others are wanted once each."""
    set_acl(a_file(here / "f"), *BASE)
    no_mask = (("u", 6, ANY), ("user", 4, READER), ("g", 0, ANY), ("o", 0, ANY))
    no_others = (("u", 6, ANY), ("g", 0, ANY))
    for entries in (no_mask, no_others):
        refused(errno.EINVAL, os.setxattr, here / "f", ACCESS, packed(*entries))


@pytest.mark.case("PSX-ACL-EPERM", section="acl(5): ACCESS CHECK ALGORITHM")
def test_an_acl_is_set_by_the_owner(here):
    """[EPERM] The process neither owns the file nor is privileged."""
    here.chmod(0o777)
    set_acl(a_file(here / "f", mode=0o666), ("u", 6, ANY), ("g", 6, ANY), ("o", 6, ANY))
    with as_user(READER, READER):
        refused((errno.EPERM, errno.EACCES), os.setxattr, here / "f", ACCESS, packed(*BASE))


@pytest.mark.case("PSX-ACL-DEFAULT-FILE", section=default, kills=("acl-not-inherited",))
def test_a_new_file_inherits_the_default_acl(here):
    """The object inherits the default ACL as its access ACL, less what its mode does not grant."""
    (here / "d").mkdir()
    set_acl(here / "d", *BASE, kind=DEFAULT)
    os.close(os.open(here / "d" / "f", os.O_CREAT | os.O_WRONLY, 0o640))
    entries = unpacked(os.getxattr(here / "d" / "f", ACCESS))
    assert ("user", 4, READER) in entries
    assert ("mask", 4, ANY) in entries
    refused(errno.ENODATA, os.getxattr, here / "d" / "f", DEFAULT)


@pytest.mark.case("PSX-ACL-DEFAULT-UMASK", section=default)
def test_the_umask_is_not_used_where_there_is_a_default_acl(here):
    """If a default ACL exists, the file creation mask is ignored."""
    (here / "d").mkdir()
    set_acl(here / "d", ("u", 7, ANY), ("g", 6, ANY), ("o", 6, ANY), kind=DEFAULT)
    os.umask(0o077)
    os.close(os.open(here / "d" / "f", os.O_CREAT | os.O_WRONLY, 0o666))
    assert stat.S_IMODE(os.stat(here / "d" / "f").st_mode) == 0o666


@pytest.mark.case("PSX-ACL-DEFAULT-DIRECTORY", section=default, kills=("acl-not-inherited",))
def test_a_new_directory_inherits_the_default_acl_twice(here):
    """A new directory has its parent's default ACL as its own default ACL and as its access ACL."""
    (here / "d").mkdir()
    set_acl(here / "d", *BASE, kind=DEFAULT)
    (here / "d" / "e").mkdir()
    assert unpacked(os.getxattr(here / "d" / "e", DEFAULT)) == list(BASE)
    assert ("user", 4, READER) in unpacked(os.getxattr(here / "d" / "e", ACCESS))


@pytest.mark.case("PSX-ACL-REMOVE", section="acl(5): ACL TYPES", kills=("xattr-remove-ignored",))
def test_a_removed_acl_leaves_the_mode(here):
    """Without an extended ACL the permission bits are all there is."""
    set_acl(a_file(here / "f", b"x"), *BASE)
    os.removexattr(here / "f", ACCESS)
    with as_user(READER, OTHER):
        refused(errno.EACCES, os.open, here / "f", os.O_RDONLY)
