"""Parts of security descriptors, and the access that they need (MS-SMB2 3.3.5.20.3, 3.3.5.21.3)."""

import struct

import pytest

from storagetest.suites.conformance.smb2.support import case
from storagetest.wire.smb2.codes import (
    DACL_SECURITY,
    GROUP_SECURITY,
    OWNER_SECURITY,
    Access,
    Disposition,
    InfoType,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.20.1", level="MUST")]

SECURITY = pytest.mark.case(section="MS-SMB2 3.3.5.20.3")


def descriptor(opened, parts):
    """Return revision, control, and the offsets of owner, group, SACL and DACL (MS-DTYP 2.4.6)."""
    buffer = expect(opened.query(0, kind=InfoType.SECURITY, additional=parts)).buffer
    return struct.unpack_from("<BxHIIII", buffer)


@SECURITY
@pytest.mark.parametrize(
    ("parts", "at"),
    [
        case("SMB-SD-OWNER", OWNER_SECURITY, 2, kills=("security-parts-lost",)),
        case("SMB-SD-GROUP", GROUP_SECURITY, 3, kills=("security-parts-lost",)),
        case("SMB-SD-DACL", DACL_SECURITY, 5, kills=("security-parts-lost",)),
    ],
)
def test_the_part_of_the_descriptor_that_was_requested_is_returned_alone(tree, path, parts, at):
    found = descriptor(tree.open(path), parts)
    assert (found[0], found[1] & 0x8000) == (1, 0x8000)  # self-relative
    assert [number for number in (2, 3, 4, 5) if found[number]] == [at]


@SECURITY
@pytest.mark.case("SMB-SD-SHORT", kills=("accepts-query-info", "length-ignored"))
def test_a_buffer_shorter_than_the_descriptor_is_too_small(tree, path):
    message = tree.open(path).query(0, kind=InfoType.SECURITY, additional=OWNER_SECURITY, length=4)
    expect(message, SmbStatus.BUFFER_TOO_SMALL)


@SECURITY
@pytest.mark.case("SMB-SD-DENIED", section="MS-FSA 2.1.5.14", kills=("accepts-query-info", "access-more"))
def test_a_descriptor_is_not_queried_without_the_access(tree, written):
    opened = tree.open(written(), access=Access.READ_DATA, disposition=Disposition.OPEN)
    message = opened.query(0, kind=InfoType.SECURITY, additional=OWNER_SECURITY)
    expect(message, SmbStatus.ACCESS_DENIED)


@pytest.mark.case(
    "SMB-SD-SET-DENIED", section="MS-SMB2 3.3.5.21.3", kills=("accepts-set-info", "access-more")
)
def test_a_descriptor_is_not_set_without_the_access(tree, written):
    opened = tree.open(written(), access=Access.READ_CONTROL, disposition=Disposition.OPEN)
    parts = {"kind": InfoType.SECURITY, "additional": DACL_SECURITY}
    data = expect(opened.query(0, **parts)).buffer
    expect(opened.set(0, data, **parts), SmbStatus.ACCESS_DENIED)
