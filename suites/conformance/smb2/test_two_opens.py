"""What an open states of a file that another open changes, and does not depend on its access (MS-SMB2)."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from storagetest.suites.conformance.smb2.support import case
from storagetest.suites.conformance.smb2.test_after_changes import CHANGES
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import Access, Disposition, FileInfo, SmbAttribute, SmbStatus
from storagetest.wire.smb2.harness import expect

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(level="MUST", section="MS-SMB2 3.3.5.10")]

HIDDEN, SYSTEM = SmbAttribute.HIDDEN, SmbAttribute.SYSTEM
POSTQUERY = 1
"""SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB (2.2.15)."""


@pytest.mark.parametrize(
    "change",
    [case(f"SMB-CLOSE-OTHER-{name}", one, kills=("close-size-of-own",)) for name, one in CHANGES.items()],
)
@pytest.mark.case(section="MS-SMB2 2.2.16, 3.3.5.10")
def test_a_close_states_the_size_that_another_open_left(
    tree: Tree, other: Tree, written: Callable[..., str], change: Callable[[SmbFile], int]
) -> None:
    """The attributes are queried when the open is closed, and are those of the file."""
    name = written()
    file = tree.open(name, disposition=Disposition.OPEN)
    expect(file.write(b"first"))
    size = change(other.open(name, disposition=Disposition.OPEN))
    closed = expect(file.close(flags=POSTQUERY))
    assert closed["flags"] == POSTQUERY, "the attributes were asked for"
    assert closed["end_of_file"] == size, (
        f"the file has {size} bytes, and CLOSE states {closed['end_of_file']}"
    )


@pytest.mark.parametrize(
    ("info_class", "at"),
    [
        case("SMB-INFO-PENDING-OTHER", FileInfo.STANDARD, 20, kills=("delete-pending-of-open",)),
        case("SMB-ALL-PENDING-OTHER", FileInfo.ALL, 60, kills=("delete-pending-of-open",)),
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4.45")
def test_a_deletion_is_pending_for_every_open_of_the_file(
    tree: Tree, other: Tree, written: Callable[..., str], info_class: FileInfo, at: int
) -> None:
    """DeletePending: a file deletion has been requested, by whichever open, and until it is cancelled."""
    name = written()
    opens = [one.open(name, disposition=Disposition.OPEN) for one in (tree, other)]
    by = tree.open(name, access=Access.DELETE | Access.READ_ATTRIBUTES, disposition=Disposition.OPEN)
    for pending in (True, False, True):
        expect(by.delete_on_close(pending=pending))
        found = [expect(one.query(info_class)).buffer[at] for one in (by, *opens)]
        assert found == [pending] * 3, (
            f"DeletePending of three opens is {found}, and should be {int(pending)}"
        )


# Attributes and access


@pytest.mark.parametrize(
    ("attributes", "disposition", "given"),
    [
        case(f"SMB-OVERWRITE-{name}", *each, kills=("overwrite-hidden",))
        for name, each in {
            "HIDDEN": (HIDDEN, Disposition.OVERWRITE, 0),
            "HIDDEN-IF": (HIDDEN, Disposition.OVERWRITE_IF, 0),
            "SYSTEM": (SYSTEM, Disposition.OVERWRITE, 0),
            "SYSTEM-HIDDEN": (SYSTEM, Disposition.OVERWRITE_IF, HIDDEN),
            "BOTH": (HIDDEN | SYSTEM, Disposition.OVERWRITE, SYSTEM),
        }.items()
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.5.1.2")
def test_a_hidden_or_system_file_is_not_overwritten_without_the_attribute(
    tree: Tree, path: str, attributes: SmbAttribute, disposition: Disposition, given: int
) -> None:
    file = tree.open(path, disposition=Disposition.CREATE, attributes=attributes)
    expect(file.write(b"kept"))
    (stated,) = struct.unpack_from("<I", expect(file.query(FileInfo.BASIC)).buffer, 32)
    expect(file.close())
    if stated & attributes != attributes:
        pytest.skip(f"the file system does not keep the attributes {attributes.name}")
    done = tree.create(path, disposition=disposition, attributes=given)
    expect(done, SmbStatus.ACCESS_DENIED)
    kept = tree.open(path, disposition=Disposition.OPEN)
    assert expect(kept.read(4)).buffer == b"kept", "a refused CREATE has overwritten the file"
    expect(kept.close())
    whole = tree.open(path, disposition=disposition, attributes=attributes)
    assert whole.message["end_of_file"] == 0


@pytest.mark.parametrize(
    "access",
    [
        case(f"SMB-MAXIMAL-OF-{name}", access, kills=("maximal-is-granted",))
        for name, access in {
            "ATTRIBUTES": Access.READ_ATTRIBUTES,
            "READ": Access.READ_DATA | Access.READ_ATTRIBUTES,
            "WRITE": Access.WRITE_DATA,
            "DELETE": Access.DELETE,
        }.items()
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.14.2.5, 3.3.5.9.5")
def test_the_maximal_access_does_not_depend_on_the_access_of_the_open(
    tree: Tree, written: Callable[..., str], access: Access
) -> None:
    """MaximalAccess is that of the user on the file, so each open of it by one user has the same."""
    name, asked = written(), [(c.MAXIMAL_ACCESS, b"")]
    found = []
    for one in (Access.READ_DATA | Access.WRITE_DATA | Access.DELETE, access):
        file = tree.open(name, access=one, disposition=Disposition.OPEN, contexts=asked)
        assert c.MAXIMAL_ACCESS in file.contexts, "the response has no MxAc"
        status, most = struct.unpack("<II", file.contexts[c.MAXIMAL_ACCESS])
        assert status == SmbStatus.SUCCESS, f"QueryStatus is {SmbStatus.name_of(status)}"
        found.append(most)
        expect(file.close())
    assert found[0] == found[1], f"MaximalAccess is {found[0]:#x}, and {found[1]:#x} with less access"
