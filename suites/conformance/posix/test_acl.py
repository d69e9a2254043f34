"""POSIX access control lists, through their attributes (acl(5), after IEEE 1003.1e draft 17)."""

from __future__ import annotations

import errno
import os
import stat
import struct

import pytest

from storagetest.agent.testlib import assert_errno, run_as_user, skip
from storagetest.agent.testlib.tmpfiles import fifo, make_file

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE", "PSX-ACL-KEPT"),
        section="acl(5): ACCESS CHECK ALGORITHM",
    ),
]
mode_bits = "acl(5): CORRESPONDENCE BETWEEN ACL ENTRIES AND FILE PERMISSION BITS"
default = "acl(5): OBJECT CREATION AND DEFAULT ACLs"

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
NO_ID = 0xFFFFFFFF
TAGS = {"u": 0x01, "user": 0x02, "g": 0x04, "group": 0x08, "mask": 0x10, "o": 0x20}  # <linux/posix_acl.h>
READER, OTHER, TEAM = 54321, 54322, 54400


def encode_acl(*entries) -> bytes:
    """Return the attribute's value: version 2, then tag, permissions and ID of each entry, little-endian."""
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", TAGS[tag], bits, identifier) for tag, bits, identifier in entries
    )


def decode_acl(value: bytes):
    names = {number: tag for tag, number in TAGS.items()}
    return [(names[tag], bits, identifier) for tag, bits, identifier in struct.iter_unpack("<HHI", value[4:])]


def set_acl(path, *entries, kind: str = ACCESS) -> None:
    """Set an ACL; skip the case if the mount has none."""
    try:
        os.setxattr(path, kind, encode_acl(*entries))
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            skip("there are no POSIX ACLs on this mount (setxattr(2), ENOTSUP)")
        raise


BASE = (("u", 6, NO_ID), ("user", 4, READER), ("g", 0, NO_ID), ("mask", 6, NO_ID), ("o", 0, NO_ID))


@pytest.mark.case("PSX-ACL-KEPT", section="acl(5): ACL ENTRIES", kills=("acl-ignored",))
def test_acl_is_returned_as_it_was_set(client_dir):
    """getxattr() returns the entries that setxattr() set."""
    set_acl(make_file(client_dir / "f"), *BASE)
    assert decode_acl(os.getxattr(client_dir / "f", ACCESS)) == list(BASE)


@pytest.mark.case("PSX-ACL-NAMED-USER", kills=("acl-default-grants",))
def test_named_user_entry_grants_access(client_dir):
    """If the effective user ID matches a named user entry, that entry and the mask decide."""
    set_acl(make_file(client_dir / "f", b"x"), *BASE)
    with run_as_user(READER, OTHER):
        assert (client_dir / "f").read_bytes() == b"x"
        assert_errno(errno.EACCES, os.open, client_dir / "f", os.O_WRONLY)
    with run_as_user(OTHER, OTHER):
        assert_errno(errno.EACCES, os.open, client_dir / "f", os.O_RDONLY)


@pytest.mark.case(
    "PSX-ACL-NAMED-GROUP",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-MAY-EXTRA-GROUP"),
    kills=("acl-default-grants", "acl-ignored", "groups-ignored"),
)
def test_named_group_entry_grants_access(client_dir):
    """If a group of the process matches a named group entry that grants it, access is granted."""
    entries = (("u", 6, NO_ID), ("g", 0, NO_ID), ("group", 4, TEAM), ("mask", 4, NO_ID), ("o", 0, NO_ID))
    set_acl(make_file(client_dir / "f", b"x"), *entries)
    with run_as_user(OTHER, OTHER, TEAM):
        assert (client_dir / "f").read_bytes() == b"x"
    with run_as_user(OTHER, OTHER):
        assert_errno(errno.EACCES, os.open, client_dir / "f", os.O_RDONLY)


@pytest.mark.case("PSX-ACL-MASK", kills=("acl-default-grants",))
def test_mask_limits_named_entries(client_dir):
    """The mask entry denotes the maximum that named users, the group and named groups are granted."""
    entries = (("u", 6, NO_ID), ("user", 6, READER), ("g", 6, NO_ID), ("mask", 4, NO_ID), ("o", 0, NO_ID))
    set_acl(make_file(client_dir / "f", b"x"), *entries)
    with run_as_user(READER, OTHER):
        assert (client_dir / "f").read_bytes() == b"x"
        assert_errno(errno.EACCES, os.open, client_dir / "f", os.O_WRONLY)


@pytest.mark.case("PSX-ACL-DENY", kills=("acl-ignored",))
def test_named_user_entry_that_denies_is_final(client_dir):
    """If a named user entry matches and does not grant it, access is denied, even if others have it."""
    entries = (("u", 6, NO_ID), ("user", 0, READER), ("g", 4, NO_ID), ("mask", 4, NO_ID), ("o", 4, NO_ID))
    set_acl(make_file(client_dir / "f", b"x"), *entries)
    with run_as_user(READER, READER):
        assert_errno(errno.EACCES, os.open, client_dir / "f", os.O_RDONLY)
    with run_as_user(OTHER, OTHER):
        assert (client_dir / "f").read_bytes() == b"x"


@pytest.mark.case("PSX-ACL-MODE", section=mode_bits, kills=("acl-ignored",))
def test_group_bits_of_the_mode_are_the_mask(client_dir):
    """With a mask entry, the group class bits of the mode correspond to it."""
    set_acl(make_file(client_dir / "f"), *BASE)
    assert stat.S_IMODE(os.stat(client_dir / "f").st_mode) == 0o660


@pytest.mark.case("PSX-ACL-CHMOD", section=mode_bits, kills=("acl-ignored", "acl-chmod-keeps-mask"))
def test_chmod_changes_the_mask(client_dir):
    """Modification of the file permission bits results in the modification of the associated entries."""
    set_acl(make_file(client_dir / "f"), *BASE)
    os.chmod(client_dir / "f", 0o640)
    entries = decode_acl(os.getxattr(client_dir / "f", ACCESS))
    assert ("mask", 4, NO_ID) in entries
    assert ("g", 0, NO_ID) in entries


@pytest.mark.case("PSX-ACL-MINIMAL", section=mode_bits, kills=("acl-ignored",))
def test_minimal_acl_is_the_mode(client_dir):
    """A minimal ACL has three entries, which are the permission bits."""
    make_file(client_dir / "f")
    set_acl(client_dir / "f", ("u", 6, NO_ID), ("g", 4, NO_ID), ("o", 0, NO_ID))
    assert stat.S_IMODE(os.stat(client_dir / "f").st_mode) == 0o640


@pytest.mark.case("PSX-ACL-INVALID", section="acl(5): VALID ACLs")
def test_invalid_acl_is_refused(client_dir):
    """[EINVAL] Named entries require a mask; owner, group and others are each required once."""
    set_acl(make_file(client_dir / "f"), *BASE)
    no_mask = (("u", 6, NO_ID), ("user", 4, READER), ("g", 0, NO_ID), ("o", 0, NO_ID))
    no_others = (("u", 6, NO_ID), ("g", 0, NO_ID))
    for entries in (no_mask, no_others):
        assert_errno(errno.EINVAL, os.setxattr, client_dir / "f", ACCESS, encode_acl(*entries))


@pytest.mark.case("PSX-ACL-EPERM", section="acl(5): ACCESS CHECK ALGORITHM")
def test_acl_is_set_by_its_owner_only(client_dir):
    """[EPERM] The process neither owns the file nor is privileged."""
    client_dir.chmod(0o777)
    set_acl(make_file(client_dir / "f", mode=0o666), ("u", 6, NO_ID), ("g", 6, NO_ID), ("o", 6, NO_ID))
    with run_as_user(READER, READER):
        assert_errno((errno.EPERM, errno.EACCES), os.setxattr, client_dir / "f", ACCESS, encode_acl(*BASE))


@pytest.mark.case("PSX-ACL-DEFAULT-FILE", section=default, kills=("acl-not-inherited",))
def test_new_file_inherits_the_default_acl(client_dir):
    """A new file inherits the default ACL as its access ACL, limited by its mode."""
    (client_dir / "d").mkdir()
    set_acl(client_dir / "d", *BASE, kind=DEFAULT)
    os.close(os.open(client_dir / "d" / "f", os.O_CREAT | os.O_WRONLY, 0o640))
    entries = decode_acl(os.getxattr(client_dir / "d" / "f", ACCESS))
    assert ("user", 4, READER) in entries
    assert ("mask", 4, NO_ID) in entries
    assert_errno(errno.ENODATA, os.getxattr, client_dir / "d" / "f", DEFAULT)


@pytest.mark.case("PSX-ACL-DEFAULT-FIFO", section=default, kills=("acl-not-inherited-by-fifo",))
def test_new_fifo_inherits_the_default_acl(client_dir):
    """A new object of any type but a symbolic link inherits the default ACL, limited by its mode."""
    (client_dir / "d").mkdir()
    set_acl(client_dir / "d", *BASE, kind=DEFAULT)
    fifo(client_dir / "d" / "fifo", 0o640)
    entries = decode_acl(os.getxattr(client_dir / "d" / "fifo", ACCESS))
    assert ("user", 4, READER) in entries
    assert ("mask", 4, NO_ID) in entries


@pytest.mark.case("PSX-ACL-DEFAULT-UMASK", section=default)
def test_default_acl_replaces_the_umask(client_dir):
    """If a default ACL exists, the file creation mask is ignored."""
    (client_dir / "d").mkdir()
    set_acl(client_dir / "d", ("u", 7, NO_ID), ("g", 6, NO_ID), ("o", 6, NO_ID), kind=DEFAULT)
    os.umask(0o077)
    os.close(os.open(client_dir / "d" / "f", os.O_CREAT | os.O_WRONLY, 0o666))
    found = stat.S_IMODE(os.stat(client_dir / "d" / "f").st_mode)
    assert found == 0o666, f"a file that open() made with 0666 and a mask of 077 has the mode {found:#o}"


def _make_unnamed(path, mode) -> int:
    """Make a file without a name next to ``path`` and return its mode."""
    try:
        descriptor = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, mode)
    except OSError as error:
        skip(f"the file system has no O_TMPFILE: {error.strerror}")
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def _making(call):
    """Return a function that makes an object by ``call(path, mode)`` and returns the mode that it has."""

    def make(path, mode) -> int:
        call(path, mode)
        return stat.S_IMODE(os.stat(path).st_mode)

    return make


UMASK_CALLS = {
    "MKDIR": (_making(os.mkdir), ("acl-default-umask-on-mkdir", "acl-default-mkdir-mode-ignored")),
    "MKFIFO": (_making(fifo), ("acl-default-umask-on-mknod",)),
    "MKNOD": (
        _making(lambda path, mode: os.mknod(path, stat.S_IFREG | mode)),
        ("acl-default-umask-on-mknod",),
    ),
    "TMPFILE": (_make_unnamed, ("acl-default-umask-on-tmpfile",)),
}
"""How an object is made → the call that makes it and returns its mode, and the mutants."""


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(
            how,
            id=how.lower(),
            marks=pytest.mark.case(f"PSX-ACL-DEFAULT-UMASK-{how}", kills=UMASK_CALLS[how][1]),
        )
        for how in UMASK_CALLS
    ],
)
@pytest.mark.case(section=default, builds_on=("PSX-DATA-NEW-FILE", "PSX-ACL-DEFAULT-UMASK"))
def test_default_acl_replaces_the_umask_for_each_kind_of_object(client_dir, how):
    """The permissions are those that both the mode of the call and the default ACL have; the mask is ignored.

    For directories, FIFOs and unnamed files as for files; one after the other.
    """
    make, _ = UMASK_CALLS[how]
    (client_dir / "d").mkdir()
    set_acl(client_dir / "d", ("u", 7, NO_ID), ("g", 6, NO_ID), ("o", 6, NO_ID), kind=DEFAULT)
    os.umask(0o077)
    for number, mode in enumerate((0o777, 0o750, 0o604, 0o777)):
        found, wanted = make(client_dir / "d" / f"{number}", mode), mode & 0o766
        assert found == wanted, (
            f"{how.lower()} with the mode {mode:o} below a default ACL of 766, with the mask 077, makes "
            f"the mode {found:o}, not {wanted:o}"
        )


@pytest.mark.case("PSX-ACL-DEFAULT-DIRECTORY", section=default, kills=("acl-not-inherited",))
def test_new_directory_inherits_the_default_acl_as_both_acls(client_dir):
    """A new directory has its parent's default ACL as its own default ACL and as its access ACL."""
    (client_dir / "d").mkdir()
    set_acl(client_dir / "d", *BASE, kind=DEFAULT)
    (client_dir / "d" / "e").mkdir()
    assert decode_acl(os.getxattr(client_dir / "d" / "e", DEFAULT)) == list(BASE)
    assert ("user", 4, READER) in decode_acl(os.getxattr(client_dir / "d" / "e", ACCESS))


@pytest.mark.case(
    "PSX-ACL-REMOVE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-ACL-DENY"),
    section="acl(5): ACL TYPES",
    kills=("xattr-remove-ignored",),
)
def test_mode_decides_after_the_acl_is_removed(client_dir):
    """Without an extended ACL only the permission bits decide."""
    set_acl(make_file(client_dir / "f", b"x"), *BASE)
    os.removexattr(client_dir / "f", ACCESS)
    with run_as_user(READER, OTHER):
        assert_errno(errno.EACCES, os.open, client_dir / "f", os.O_RDONLY)


@pytest.mark.case(
    "PSX-ACL-DEFAULT-DEEP",
    section=default,
    builds_on=("PSX-ACL-DEFAULT-DIRECTORY",),
    kills=("acl-default-second-level-lost",),
)
def test_default_acl_is_inherited_at_each_depth(client_dir):
    """What a directory inherited is inherited by the directories and files that are made in it."""
    path = client_dir / "top"
    path.mkdir()
    set_acl(path, *BASE, kind=DEFAULT)
    for depth in range(1, 5):
        path = path / f"level{depth}"
        path.mkdir()
        assert DEFAULT in os.listxattr(path), f"a directory {depth} levels below has no default ACL"
        assert decode_acl(os.getxattr(path, DEFAULT)) == list(BASE), f"default ACL {depth} levels below"
        file = make_file(path / "file")
        assert ACCESS in os.listxattr(file), f"a file {depth} levels below has no ACL"
        assert ("user", 4, READER) in decode_acl(os.getxattr(file, ACCESS)), f"a file {depth} levels below"


def _truncated_by_open(path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


def _replacing(path) -> None:
    """Let the file replace another one, and get its name back."""
    make_file(path.parent / "other")
    os.rename(path, path.parent / "other")
    os.rename(path.parent / "other", path)


@pytest.mark.case(
    "PSX-ACL-KEPT-CHANGES",
    section="acl(5): ACL TYPES",
    kills=("acl-lost-at-rename", "acl-lost-at-open-trunc", "acl-lost-at-chown", "acl-lost-at-write"),
)
def test_acl_stays_with_the_file(client_dir):
    """The access ACL is of the file: its data, times, owner and names change, and no entry of its ACL."""
    path = make_file(client_dir / "f", b"data")
    set_acl(path, *BASE)
    calls = {
        "a write": lambda: path.write_bytes(b"more data"),
        "truncate()": lambda: os.truncate(path, 3),
        "O_TRUNC": lambda: _truncated_by_open(path),
        "utimensat()": lambda: os.utime(path, (1_000_000_000, 1_000_000_000)),
        "chown() of the group": lambda: os.chown(path, -1, TEAM),
        "chown()": lambda: os.chown(path, OTHER, OTHER),
        "rename() over another file": lambda: _replacing(path),
    }
    for turn in (1, 2):
        for text, call in calls.items():
            call()
            assert ACCESS in os.listxattr(path), f"the file has no ACL after {text}, time {turn}"
            found = decode_acl(os.getxattr(path, ACCESS))
            assert found == list(BASE), f"the ACL is {found} after {text}, time {turn}"


@pytest.mark.case("PSX-ACL-APART", section="acl(5): ACL TYPES", kills=("second-default-acl-is-access-acl",))
def test_access_and_default_acl_of_a_directory_are_set_apart(client_dir):
    """Each of the two is set, replaced and removed without a change of the other: each time."""
    directory = client_dir / "d"
    directory.mkdir()

    def entries(bits):
        return (("u", 7, NO_ID), ("user", bits, READER), ("g", 0, NO_ID), ("mask", 7, NO_ID), ("o", 0, NO_ID))

    wanted = {ACCESS: entries(5), DEFAULT: entries(1)}
    for kind in (ACCESS, DEFAULT):
        set_acl(directory, *wanted[kind], kind=kind)
    for turn, (kind, bits) in enumerate((
        (DEFAULT, 2), (DEFAULT, 3), (ACCESS, 4), (DEFAULT, None), (DEFAULT, 6), (ACCESS, 7), (DEFAULT, 1),
    )):  # fmt: skip
        if bits is None:
            os.removexattr(directory, kind)
            wanted.pop(kind)
        else:
            wanted[kind] = entries(bits)
            set_acl(directory, *wanted[kind], kind=kind)
        found = {one: decode_acl(os.getxattr(directory, one)) for one in wanted}
        assert found == {one: list(acl) for one, acl in wanted.items()}, (
            f"the access and the default ACL after change {turn + 1}, of {kind}"
        )
        listed = {one for one in os.listxattr(directory) if one in (ACCESS, DEFAULT)}
        assert listed == set(wanted), f"the ACLs that are listed after change {turn + 1}, of {kind}"


@pytest.mark.case("PSX-ACL-MODE-AGAIN", section=mode_bits, kills=("acl-minimal-keeps-mask",))
def test_mode_is_that_of_the_acl_that_was_set_last(client_dir):
    """The group bits are the mask, or without one the group's entry, of each ACL that is set or changed."""
    (client_dir / "d").mkdir()

    def acl(user, group, mask, others):
        named = (("user", 7, READER), ("group", 5, TEAM)) if mask is not None else ()
        entries = (("u", user, NO_ID), *named[:1], ("g", group, NO_ID), *named[1:])
        return (*entries, *((("mask", mask, NO_ID),) if named else ()), ("o", others, NO_ID))

    bits = ((7, 1, 6, 0), (6, 4, None, 4), (6, 7, 2, 1), (7, 0, None, 0), (6, 2, 5, 4), (6, 6, None, 5))
    for path in (make_file(client_dir / "f"), client_dir / "d"):
        for turn, (user, group, mask, others) in enumerate(bits):
            set_acl(path, *acl(user, group, mask, others))
            wanted = user << 6 | (group if mask is None else mask) << 3 | others
            found = stat.S_IMODE(os.stat(path).st_mode)
            assert found == wanted, (
                f"the mode is {found:#o}, not {wanted:#o}, with ACL {turn + 1} of {path.name}"
            )
            if mask is not None:
                assert decode_acl(os.getxattr(path, ACCESS)) == list(acl(user, group, mask, others))
            os.chmod(path, 0o750 + turn)
            found = stat.S_IMODE(os.stat(path).st_mode)
            assert found == 0o750 + turn, f"chmod() with ACL {turn + 1} of {path.name} leaves {found:#o}"


@pytest.mark.case("PSX-ACL-LARGE-IDS", section="acl(5): ACL ENTRIES", kills=("acl-id-16-bits",))
def test_large_ids_of_entries_are_kept(client_dir):
    """Entries of users and groups beyond 16 and 31 bits are returned as set, and decide for these alone."""
    path = make_file(client_dir / "f", b"x")
    (client_dir / "d").mkdir()
    numbers = (65_534, (1 << 16) + 7, (1 << 24) + 9, (1 << 31) + 5)
    wanted = [("u", 6, NO_ID), *(("user", 4, one) for one in numbers), ("g", 0, NO_ID)]
    wanted += [*(("group", 4, one + 1) for one in numbers), ("mask", 6, NO_ID), ("o", 0, NO_ID)]
    for one, kind in ((path, ACCESS), (client_dir / "d", ACCESS), (client_dir / "d", DEFAULT)):
        set_acl(one, *wanted, kind=kind)
        found = decode_acl(os.getxattr(one, kind))
        other = [(set_to, got) for set_to, got in zip(wanted, found, strict=False) if set_to != got]
        assert found == wanted, f"an entry is returned as another one: {other[:1]}"
    for number in numbers:
        for user, group in ((number, 1001), (1001, number + 1)):
            with run_as_user(user, group):
                assert path.read_bytes() == b"x"
    for user, group in ((7, 1001), (9, 1001), (5, 1001), (1001, 8), (1001, 10)):
        with run_as_user(user, group):
            assert_errno(errno.EACCES, os.open, path, os.O_RDONLY)


@pytest.mark.case("PSX-ACL-DEFAULT-KEPT", section="acl(5): ACL TYPES", kills=("chmod-changes-default-acl",))
def test_default_acl_stays_with_the_directory(client_dir):
    """The default ACL is of the directory: its mode, owner, times, name and entries change, it does not."""
    directory = client_dir / "d"
    directory.mkdir()
    plain = (("u", 7, NO_ID), ("g", 5, NO_ID), ("o", 1, NO_ID))
    calls = {
        "chmod() of 0700": lambda: os.chmod(directory, 0o700),
        "chmod() of 02777": lambda: os.chmod(directory, 0o2777),
        "chown() of the group": lambda: os.chown(directory, -1, TEAM),
        "chown()": lambda: os.chown(directory, OTHER, OTHER),
        "utimensat()": lambda: os.utime(directory, (1_000_000_000, 1_000_000_000)),
        "a new file": lambda: make_file(directory / "f"),
        "rename() and back": lambda: (
            os.rename(directory, client_dir / "e"),
            os.rename(client_dir / "e", directory),
        ),
        "chmod() of its file": lambda: os.chmod(directory / "f", 0o600),
        "unlink() of its file": lambda: os.unlink(directory / "f"),
    }
    for wanted in (BASE, plain):
        set_acl(directory, *wanted, kind=DEFAULT)
        for turn in (1, 2):
            for text, call in calls.items():
                call()
                assert DEFAULT in os.listxattr(directory), (
                    f"there is no default ACL after {text}, time {turn}"
                )
                found = decode_acl(os.getxattr(directory, DEFAULT))
                assert found == list(wanted), f"the default ACL is {found} after {text}, time {turn}"
