"""Extended attributes (RFC 8276): GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR, and xattr_support.

They are optional: a server without them ends the operations with NFS4ERR_NOTSUPP, and the cases are skipped.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.sparse import served
from storagetest.wire.nfs4.client import Done, Nfs4Client, ok, refused
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import create, getattr_, op, putfh, remove
from storagetest.wire.nfs4.types import (
    FATTR4_CHANGE,
    FATTR4_XATTR_SUPPORT,
    GETXATTR4args,
    LISTXATTRS4args,
    REMOVEXATTR4args,
    SETXATTR4args,
    nfsstat4,
    setxattr_option4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

EITHER = setxattr_option4.SETXATTR4_EITHER
CREATE = setxattr_option4.SETXATTR4_CREATE
REPLACE = setxattr_option4.SETXATTR4_REPLACE
FIXED = 8 + 4 + 4
"""Bytes of LISTXATTRS4resok besides the names: cookie, number of names, lxr_eof (RFC 8276 8.4.3)."""


class Attributes:
    """The extended attributes of one file."""

    def __init__(self, nfs: Nfs4Client, handle: bytes) -> None:
        self.nfs = nfs
        self.handle = handle

    def _on(self, name: str, argument: object) -> Done:
        return served(name, self.nfs.compound(putfh(self.handle), op(name, argument)))

    def set(self, name: bytes, value: bytes, how: setxattr_option4 = EITHER) -> Done:
        """SETXATTR."""
        return self._on("SETXATTR", SETXATTR4args(how, name, value))

    def get(self, name: bytes) -> Done:
        """GETXATTR."""
        return self._on("GETXATTR", GETXATTR4args(name))

    def value(self, name: bytes) -> bytes:
        """Return a value. Raises AssertionError if there is none."""
        found: bytes = ok(self.get(name))["GETXATTR"]
        return found

    def remove(self, name: bytes) -> Done:
        """REMOVEXATTR."""
        return self._on("REMOVEXATTR", REMOVEXATTR4args(name))

    def list(self, cookie: int = 0, maxcount: int = 8192) -> Done:
        """LISTXATTRS."""
        return self._on("LISTXATTRS", LISTXATTRS4args(cookie, maxcount))

    def names(self, maxcount: int = 8192) -> list[bytes]:
        """Return all names, from as many LISTXATTRS as are needed.

        Raises AssertionError if a name comes twice, or if a reply that had space for more names ended without
        lxr_eof, and there are none.
        """
        names: list[bytes] = []
        cookie, free = 0, 0
        while True:
            done = self.list(cookie, maxcount)
            if not names and done.status == nfsstat4.NFS4ERR_NOXATTR:
                return []
            found = ok(done)["LISTXATTRS"]
            assert found.lxr_names or not names or free < max(map(encoded, names)), (
                f"8.4.3: lxr_eof is FALSE, {free} bytes of lxa_maxcount are free, and no name follows"
            )
            names += found.lxr_names
            assert len(names) == len(set(names)), "8.4.3: LISTXATTRS repeats a name"
            if found.lxr_eof:
                return names
            assert found.lxr_names, "8.4.3: LISTXATTRS without names that is not at the end"
            cookie, free = found.lxr_cookie, maxcount - FIXED - sum(map(encoded, found.lxr_names))


def encoded(name: bytes) -> int:
    """Return the bytes that a name takes in a reply: its length, itself, and the padding."""
    return 4 + (len(name) + 3) // 4 * 4


@pytest.fixture
def xattrs(nfs, here) -> Attributes:
    """Return the extended attributes of a new file."""
    made = Attributes(nfs, here.file())
    made.get(b"name")  # skips if there are none
    return made


@rule("XATTR-SUPPORT", v42="RFC 8276 8.2.1", kills=("xattr-support",))
def test_the_attribute_states_whether_there_are_extended_attributes(xattrs):
    found = values(ok(xattrs.nfs.compound(putfh(xattrs.handle), getattr_(FATTR4_XATTR_SUPPORT))))
    supported = found.get(FATTR4_XATTR_SUPPORT, False)
    done = xattrs.nfs.compound(putfh(xattrs.handle), op("SETXATTR", SETXATTR4args(EITHER, b"name", b"value")))
    if supported:
        ok(done)
    else:
        assert done.status != nfsstat4.NFS4_OK, "xattr_support is FALSE, and SETXATTR succeeds"


@rule(
    "XATTR-VALUE",
    v42="RFC 8276 8.4.1",
    kills=("xattr-value",),
    over={"1": b"v", "TEXT": b"value", "ZEROS": bytes(17), "BINARY": bytes(range(256)), "LONG": b"x" * 1000},
)
def test_a_value_is_returned_as_it_was_set(xattrs, what):
    ok(xattrs.set(b"name", what))
    assert xattrs.value(b"name") == what


@rule("XATTR-EMPTY", v42="RFC 8276 8.4.2", kills=("xattr-value",))
def test_an_empty_value_is_a_value(xattrs):
    ok(xattrs.set(b"name", b""))
    assert xattrs.value(b"name") == b""
    assert xattrs.names() == [b"name"]


@rule("XATTR-ABSENT", v42="RFC 8276 8.4.1", kills=("xattr-noxattr",))
def test_an_absent_attribute_is_not_returned(xattrs):
    refused(xattrs.get(b"absent"), nfsstat4.NFS4ERR_NOXATTR)


@rule("XATTR-CREATE", v42="RFC 8276 8.4.2", kills=("xattr-create",))
def test_an_attribute_is_created(xattrs):
    ok(xattrs.set(b"name", b"value", CREATE))
    assert xattrs.value(b"name") == b"value"


@rule("XATTR-CREATE-EXIST", v42="RFC 8276 8.4.2", kills=("xattr-exist", "setxattr-create-replaces"))
def test_an_attribute_that_exists_is_not_created(xattrs):
    ok(xattrs.set(b"name", b"value"))
    refused(xattrs.set(b"name", b"other", CREATE), nfsstat4.NFS4ERR_EXIST)
    assert xattrs.value(b"name") == b"value"


@rule("XATTR-REPLACE", v42="RFC 8276 8.4.2", kills=("xattr-replace",))
def test_an_attribute_is_replaced(xattrs):
    ok(xattrs.set(b"name", b"a longer value"))
    ok(xattrs.set(b"name", b"value", REPLACE))
    assert xattrs.value(b"name") == b"value"


@rule("XATTR-REPLACE-ABSENT", v42="RFC 8276 8.4.2", kills=("xattr-noxattr",))
def test_an_absent_attribute_is_not_replaced(xattrs):
    refused(xattrs.set(b"absent", b"value", REPLACE), nfsstat4.NFS4ERR_NOXATTR)
    assert xattrs.names() == []


@rule("XATTR-EITHER", v42="RFC 8276 8.4.2", kills=("xattr-ignored",))
def test_either_creates_and_replaces(xattrs):
    for value in (b"first", b"second"):
        ok(xattrs.set(b"name", value, EITHER))
        assert xattrs.value(b"name") == value


@rule("XATTR-OTHERS", v42="RFC 8276 8.4.2", kills=("xattr-mixed",))
def test_attributes_do_not_change_each_other(xattrs):
    for at in range(8):
        ok(xattrs.set(b"name-%d" % at, b"value-%d" % at))
    ok(xattrs.set(b"name-3", b"other"))
    values = [xattrs.value(b"name-%d" % at) for at in range(8)]
    assert values == [b"other" if at == 3 else b"value-%d" % at for at in range(8)]


@rule("XATTR-FILES", v42="RFC 8276 8.4.2", kills=("xattr-mixed",))
def test_attributes_are_those_of_one_file(nfs, here, xattrs):
    other = Attributes(nfs, here.file(b"other"))
    ok(xattrs.set(b"name", b"first"))
    ok(other.set(b"name", b"second"))
    assert (xattrs.value(b"name"), other.value(b"name")) == (b"first", b"second")


@rule("XATTR-DIR", v42="RFC 8276 8.4.2", kills=("xattr-value",))
def test_a_directory_has_extended_attributes(nfs, here):
    found = Attributes(nfs, here.directory())
    ok(found.set(b"name", b"value"))
    assert found.value(b"name") == b"value"


@rule("XATTR-BIG", v42="RFC 8276 8.4.2", kills=("xattr-big",))
def test_a_value_that_is_too_big_is_refused(xattrs):
    done = xattrs.set(b"name", b"x" * 500_000)
    if done.status == nfsstat4.NFS4_OK:
        pytest.skip("the server stores a value of 500,000 bytes")
    refused(done, nfsstat4.NFS4ERR_XATTR2BIG, nfsstat4.NFS4ERR_NOSPC, nfsstat4.NFS4ERR_DQUOT)
    assert xattrs.names() == []


@rule("XATTR-CINFO-SET", v42="RFC 8276 8.4.2", kills=("xattr-cinfo",))
def test_setxattr_reports_the_change_of_the_file(xattrs, here):
    reports_the_change(xattrs, here, "SETXATTR", lambda: xattrs.set(b"name", b"other"))


@rule("XATTR-CINFO-REMOVE", v42="RFC 8276 8.4.4", kills=("xattr-remove-cinfo",))
def test_removexattr_reports_the_change_of_the_file(xattrs, here):
    reports_the_change(xattrs, here, "REMOVEXATTR", lambda: xattrs.remove(b"name"))


def reports_the_change(xattrs, here, name, execute):
    """Check the change_info4 of an operation."""
    ok(xattrs.set(b"name", b"value"))
    before = here.read(xattrs.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
    found = ok(execute())[name]
    after = here.read(xattrs.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
    if not found.atomic:
        pytest.skip("change_info4 is not atomic")
    assert (found.before, found.after) == (before, after)


@rule("XATTR-REMOVE", v42="RFC 8276 8.4.4", kills=("xattr-remove",))
def test_an_attribute_is_removed(xattrs):
    ok(xattrs.set(b"kept", b"value"))
    ok(xattrs.set(b"name", b"value"))
    ok(xattrs.remove(b"name"))
    assert xattrs.get(b"name").status == nfsstat4.NFS4ERR_NOXATTR
    assert xattrs.names() == [b"kept"]


@rule("XATTR-REMOVE-ABSENT", v42="RFC 8276 8.4.4", kills=("xattr-noxattr",))
def test_an_absent_attribute_is_not_removed(xattrs):
    refused(xattrs.remove(b"absent"), nfsstat4.NFS4ERR_NOXATTR)


@rule("XATTR-REMOVE-AGAIN", v42="RFC 8276 8.4.4", kills=("xattr-noxattr",))
def test_an_attribute_is_not_removed_twice(xattrs):
    ok(xattrs.set(b"name", b"value"))
    ok(xattrs.remove(b"name"))
    refused(xattrs.remove(b"name"), nfsstat4.NFS4ERR_NOXATTR)


MANY = [b"attribute-%02d" % at for at in range(20)]


@rule("XATTR-LIST", v42="RFC 8276 8.4.3", kills=("xattr-list-lost", "xattr-list-prefix"))
def test_each_attribute_is_listed_once(xattrs):
    for name in MANY:
        ok(xattrs.set(name, b"v"))
    assert sorted(xattrs.names()) == MANY


MIXED = sorted(b"attribute-%02d" % at + b"-" * (at * 3 % 30) for at in range(40))
"""Names of 12 to 41 bytes."""
LONG = [b"attribute-%02d" % at + b"-" * 48 for at in range(6)]
KILLS = tuple(f"xattr-page-{one}" for one in ("early-eof", "skips", "repeats", "restarts", "toosmall"))
PARTS = {"64": (MANY, 64), "128": (MANY, 128), "200": (MANY, 200), "300": (MANY, 300)}
PARTS |= {"MIXED-112": (MIXED, 112), "MIXED-500": (MIXED, 500)}


@rule(
    "XATTR-LIST-PARTS",
    v42="RFC 8276 8.4.3",
    kills=(*KILLS, "xattr-page-late-eof"),
    over=PARTS,
)
def test_each_attribute_is_listed_once_in_small_replies(xattrs, what):
    """The last reply alone is at the end, and each cookie leads to the next name."""
    names, size = what
    for name in names:
        ok(xattrs.set(name, b"v"))
    assert sorted(xattrs.names(size)) == names


@rule("XATTR-LIST-PARTS-ONE", v42="RFC 8276 8.4.3", kills=KILLS)
def test_each_attribute_is_listed_once_in_replies_of_one_name(xattrs):
    for name in LONG:
        ok(xattrs.set(name, b"v"))
    assert sorted(xattrs.names(100)) == LONG


@rule("XATTR-LIST-COUNT", v42="RFC 8276 8.4.3", kills=("xattr-list-big",))
def test_a_list_is_not_longer_than_maxcount(xattrs):
    for name in MANY:
        ok(xattrs.set(name, b"v"))
    found = ok(xattrs.list(0, 100))["LISTXATTRS"]
    assert sum(map(encoded, found.lxr_names)) <= 100


@rule("XATTR-LIST-SMALL", v42="RFC 8276 8.4.3", level="SHOULD", kills=("xattr-list-toosmall",))
def test_a_maxcount_for_no_name_is_too_small(xattrs):
    ok(xattrs.set(b"n" * 100, b"v"))
    refused(xattrs.list(0, 40), nfsstat4.NFS4ERR_TOOSMALL)


@rule("XATTR-LIST-NONE", v42="RFC 8276 8.4.3", kills=("xattr-list-none",))
def test_a_file_without_attributes_lists_none(xattrs):
    assert xattrs.names() == []


@rule("XATTR-LIST-END", v42="RFC 8276 8.4.3", kills=("xattr-list-eof",))
def test_a_list_of_all_names_is_at_the_end(xattrs):
    ok(xattrs.set(b"name", b"value"))
    assert ok(xattrs.list())["LISTXATTRS"].lxr_eof


@rule("XATTR-NOFH", v42="RFC 8276 8.4.1", kills=("xattr-nofh",))
def test_an_attribute_needs_a_filehandle(xattrs):
    xattrs.get(b"name")
    done = xattrs.nfs.compound(op("GETXATTR", GETXATTR4args(b"name")))
    refused(done, nfsstat4.NFS4ERR_NOFILEHANDLE)


@rule("XATTR-LATER", v42="RFC 8276 8.4.2", kills=("xattr-ignored",))
def test_attributes_stay_for_other_clients(bench, xattrs, version):
    ok(xattrs.set(b"name", b"value"))
    assert Attributes(bench.client(version), xattrs.handle).value(b"name") == b"value"


@rule("XATTR-GONE", v42="RFC 8276 8.4.2", kills=("xattr-list-none",))
def test_a_new_file_has_no_attributes_of_an_old_one(nfs, here):
    found = Attributes(nfs, here.directory(b"sub"))
    ok(found.set(b"name", b"value"))
    ok(nfs.compound(putfh(here.handle), remove(b"sub")))
    ok(nfs.compound(putfh(here.handle), create(b"sub")))
    assert Attributes(nfs, here.find(b"sub")).names() == []
