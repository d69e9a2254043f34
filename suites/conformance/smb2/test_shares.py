"""Rights and share modes, a second tree and a second session, and the volume (MS-SMB2, MS-FSA, MS-FSCC)."""

from __future__ import annotations

import struct

import pytest

from storagetest.suites.conformance.smb2.support import case
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import (
    Access,
    Disposition,
    FileInfo,
    FsInfo,
    InfoType,
    SmbAttribute,
    SmbShare,
    SmbStatus,
)
from storagetest.wire.smb2.harness import SmbHarness, expect

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(level="MUST", section="MS-FSA 2.1.5.1.2.2")]

# Share modes

RIGHTS = {
    "READ-DATA": (Access.READ_DATA, SmbShare.READ),
    "EXECUTE": (Access.EXECUTE, SmbShare.READ),
    "WRITE-DATA": (Access.WRITE_DATA, SmbShare.WRITE),
    "APPEND-DATA": (Access.APPEND_DATA, SmbShare.WRITE),
    "DELETE": (Access.DELETE, SmbShare.DELETE),
}
"""Each right with the sharing that it needs."""


@pytest.mark.parametrize(
    ("right", "shares", "is_first"),
    [
        case(
            f"SMB-SHARE-{name}-{'HELD' if is_first else 'ASKED'}",
            right,
            shares,
            is_first,
            kills=("share-execute-append-free",)
            if name in ("EXECUTE", "APPEND-DATA")
            else ("accepts-create", "status-create"),
        )
        for name, (right, shares) in RIGHTS.items()
        for is_first in (True, False)
    ],
)
def test_each_right_is_compared_with_the_share_mode(
    tree: Tree, other: Tree, written, right: Access, shares: SmbShare, is_first: bool
) -> None:
    """Execution needs FILE_SHARE_READ as reading does, and appending FILE_SHARE_WRITE as writing does."""
    name = written()
    wants = {"access": right, "share": SmbShare.ALL, "disposition": Disposition.OPEN}
    denies = {"access": Access.READ_ATTRIBUTES | other_right(right), "disposition": Disposition.OPEN}
    for share, status in (
        (SmbShare.ALL, SmbStatus.SUCCESS),
        (SmbShare.ALL & ~shares, SmbStatus.SHARING_VIOLATION),
    ):
        order = [wants, {**denies, "share": share}]
        first, second = order if is_first else order[::-1]
        messages = [tree.create(name, **first), other.create(name, **second)]
        if messages[0 if is_first else 1].status == SmbStatus.ACCESS_DENIED:
            pytest.skip(f"the account has not the right {right.name} to its own file")
        expect(messages[0])
        expect(messages[1], status)
        for one, message in zip((tree, other), messages, strict=True):
            if not message.status:
                expect(SmbFile(one, name, bytes(message["file_id"]), message).close())


def other_right(right: Access) -> Access:
    """Return a right that needs another sharing than ``right``: an open without any is not compared."""
    return Access.WRITE_DATA if right in (Access.READ_DATA, Access.EXECUTE) else Access.READ_DATA


# Trees and sessions


@pytest.mark.case("SMB-TREE-SECOND", section="MS-SMB2 3.3.5.8", kills=("tree-disconnect-all",))
def test_a_tree_that_is_disconnected_leaves_the_others_of_its_session(tree: Tree, endpoint, written) -> None:
    """The server closes the opens of this tree connection, and removes it from the session's table."""
    name = written()
    kept = tree.session.tree(endpoint.share)
    assert kept.tree_id != tree.tree_id, "two tree connects have one TreeId"
    file = kept.open(name, disposition=Disposition.OPEN)
    expect(tree.disconnect())
    assert expect(file.read(10)).buffer == b"0123456789"
    expect(file.close())
    expect(kept.open(name, disposition=Disposition.OPEN).close())


@pytest.mark.case("SMB-SES-SECOND", section="MS-SMB2 3.3.5.6", kills=("logoff-all",))
def test_a_log_off_leaves_the_other_sessions_of_its_connection(
    tree: Tree, bench: SmbHarness, written
) -> None:
    """The server removes this session from the connection's table, and no other one."""
    name = written()
    second = bench.unauthenticated(tree.session.connection).setup()
    file = tree.open(name, disposition=Disposition.OPEN)
    expect(second.logoff())
    assert expect(file.read(10)).buffer == b"0123456789"
    expect(file.close())
    expect(tree.open(name, disposition=Disposition.OPEN).close())


# What CLOSE states

POSTQUERY = 1
"""SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB (2.2.15)."""

THEN = 130_000_000_000_000_000
"""A time in 2012 (MS-DTYP 2.3.3)."""

BASIC = {
    "ATTRIBUTES": (0, SmbAttribute.HIDDEN),
    "CREATED": (THEN, 0),
}
"""CreationTime and FileAttributes that are set; 0 leaves one as it is (MS-FSCC 2.4.7)."""


@pytest.mark.parametrize(
    ("new", "is_own"),
    [
        case(
            f"SMB-CLOSE-BASIC-{name}-{'OWN' if is_own else 'OTHER'}",
            new,
            is_own,
            kills=("close-basic-of-open",),
        )
        for name, new in BASIC.items()
        for is_own in (True, False)
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.16, 3.3.5.10")
def test_a_close_states_what_was_set_since_the_open(
    tree: Tree, other: Tree, written, new: tuple[int, int], is_own: bool
) -> None:
    """The attributes are queried when the open is closed, and are those of the file."""
    name = written()
    file = tree.open(name, disposition=Disposition.OPEN)
    by = file if is_own else other.open(name, disposition=Disposition.OPEN)
    created, attributes = new
    done = by.set(FileInfo.BASIC, struct.pack("<QQQQII", created, 0, 0, 0, attributes, 0))
    if done.status == SmbStatus.NOT_SUPPORTED:
        pytest.skip("the file system of the share does not keep these attributes")
    expect(done)
    stated = struct.unpack_from("<QQQQI", expect(file.query(FileInfo.BASIC)).buffer)
    closed = expect(file.close(flags=POSTQUERY))
    found = tuple(int(closed[one]) for one in ("creation_time", "last_write_time", "attributes"))
    assert found == (stated[0], stated[2], stated[4]), "CLOSE states other than a query just before it"
    if not is_own:
        expect(by.close())


# The volume


@pytest.mark.parametrize(
    ("info_class", "size"),
    [
        case("SMB-VOLUME-SERIAL", FsInfo.VOLUME, 12, kills=("volume-serial-changes",)),
        case("SMB-VOLUME-ATTRIBUTES", FsInfo.ATTRIBUTE, 12, kills=("volume-attributes-change",)),
    ],
)
@pytest.mark.case(section="MS-FSCC 2.5.1, 2.5.9")
def test_what_was_formatted_is_the_same_for_every_open(
    tree: Tree, other: Tree, written, info_class: FsInfo, size: int
) -> None:
    """The serial number and the time of creation are made at format time; each look is at one volume."""
    name = written()
    found = set()
    for one in (tree, other, tree):
        file = one.open(name, disposition=Disposition.OPEN)
        for _ in range(2):
            found.add(expect(file.query(info_class, kind=InfoType.FILESYSTEM)).buffer[:size])
        expect(file.close())
    assert len(found) == 1, f"{info_class.name} is {[one.hex() for one in found]}"
