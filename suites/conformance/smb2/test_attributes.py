"""Extended attributes, quota, and security descriptors that are set (MS-FSCC 2.4.15, MS-FSA 2.1.5.15.5)."""

from __future__ import annotations

import struct

import pytest

from storagetest.suites.conformance.smb2.support import NO_FSCTL, READ, case, skip_without_security
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.codes import (
    DACL_SECURITY,
    OWNER_SECURITY,
    SACL_SECURITY,
    Access,
    Disposition,
    FileInfo,
    FsInfo,
    InfoType,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.information import attribute_list, attribute_names, attributes_of

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-FSA 2.1.5.15.5", level="MUST")]

NONE_HERE = (SmbStatus.EAS_NOT_SUPPORTED, SmbStatus.NOT_SUPPORTED, SmbStatus.INVALID_DEVICE_REQUEST)
ONE, TWO = ("STORAGETEST1", b"first value"), ("STORAGETEST2", b"\0\1\2")


@pytest.fixture
def file(tree, path):
    """Return an open file on a file system with extended attributes."""
    opened = tree.open(path)
    if opened.set(FileInfo.FULL_EA, attribute_list([ONE])).status in NONE_HERE:
        pytest.skip("the file system has no extended attributes")
    return opened


def found(opened, **more):
    """Return the extended attributes, with names in capitals, as servers may store them."""
    message = opened.query(FileInfo.FULL_EA, **more)
    if message.status == SmbStatus.NO_EAS_ON_FILE:
        return {}
    return {name.upper(): value for name, value in attributes_of(expect(message).buffer).items()}


@pytest.mark.case("SMB-EA-SET", kills=("ea-not-set", "ea-value-other"))
def test_an_attribute_is_read_as_it_was_set(file):
    assert found(file) == dict([ONE])


@pytest.mark.case("SMB-EA-TWO", section="MS-FSCC 2.4.15", kills=("ea-not-set", "ea-value-other"))
def test_several_attributes_are_read_at_multiples_of_four(file):
    expect(file.set(FileInfo.FULL_EA, attribute_list([TWO])))
    assert found(file) == dict([ONE, TWO])  # attributes_of checks the alignment


@pytest.mark.case("SMB-EA-REPLACE", kills=("ea-not-set", "ea-value-other"))
def test_an_attribute_is_replaced(file):
    expect(file.set(FileInfo.FULL_EA, attribute_list([(ONE[0], b"another")])))
    assert found(file) == {ONE[0]: b"another"}


@pytest.mark.case("SMB-EA-REMOVE", kills=("ea-not-set",))
def test_an_attribute_without_a_value_is_removed(file):
    expect(file.set(FileInfo.FULL_EA, attribute_list([TWO])))
    expect(file.set(FileInfo.FULL_EA, attribute_list([(ONE[0], b"")])))
    assert found(file) == dict([TWO])


@pytest.mark.case("SMB-EA-OPEN", kills=("ea-not-set", "ea-value-other"))
def test_attributes_stay_after_the_close(tree, file):
    expect(file.close())
    assert found(tree.open(file.name, access=READ, disposition=Disposition.OPEN)) == dict([ONE])


@pytest.mark.case("SMB-EA-SIZE", section="MS-FSCC 2.4.13", kills=("info-value-other",))
def test_the_size_of_the_attributes_is_not_zero(file):
    (size,) = struct.unpack("<I", expect(file.query(FileInfo.EA)).buffer)
    assert 0 < size < 4096


@pytest.mark.case("SMB-EA-CREATE", section="MS-SMB2 3.3.5.9.1", kills=("ea-context-ignored",))
@pytest.mark.usefixtures("file")
def test_attributes_are_set_by_create(tree, path):
    contexts = [(c.EXTENDED_ATTRIBUTES, attribute_list([TWO]))]
    made = tree.open(f"{path}-new", disposition=Disposition.CREATE, contexts=contexts)
    assert found(made) == dict([TWO])


@pytest.mark.case(
    "SMB-EA-LIST", section="MS-SMB2 2.2.37, MS-FSCC 2.4.15.1", no_mutant_reason="smbd breaks this rule itself"
)
def test_only_the_attributes_of_the_list_are_returned(file):
    expect(file.set(FileInfo.FULL_EA, attribute_list([TWO])))
    assert found(file, tail=attribute_names([TWO[0]])) == dict([TWO])


@pytest.mark.case("SMB-EA-NAME", kills=("accepts-set-info", "status-set-info"))
def test_a_name_with_an_illegal_character_is_an_invalid_name(file):
    message = file.set(FileInfo.FULL_EA, attribute_list([("BAD:NAME", b"value")]))
    expect(message, SmbStatus.INVALID_EA_NAME)


@pytest.mark.case(
    "SMB-EA-READ-DENIED", section="MS-SMB2 3.3.5.20.1", kills=("accepts-query-info", "access-more")
)
def test_attributes_are_not_read_without_the_access(tree, file):
    expect(file.close())
    access = Access.READ_DATA | Access.READ_ATTRIBUTES
    opened = tree.open(file.name, access=access, disposition=Disposition.OPEN)
    expect(opened.query(FileInfo.FULL_EA), SmbStatus.ACCESS_DENIED)


@pytest.mark.case(
    "SMB-EA-WRITE-DENIED", section="MS-SMB2 3.3.5.21.1", kills=("accepts-set-info", "access-more")
)
def test_attributes_are_not_set_without_the_access(tree, file):
    expect(file.close())
    opened = tree.open(file.name, access=Access.READ_DATA, disposition=Disposition.OPEN)
    expect(opened.set(FileInfo.FULL_EA, attribute_list([TWO])), SmbStatus.ACCESS_DENIED)


# Quota

QUOTA = pytest.mark.case(section="MS-SMB2 3.3.5.20.4")


@QUOTA
@pytest.mark.case("SMB-QUOTA-SHORT", kills=("accepts-query-info",))
def test_a_quota_query_without_its_list_is_refused(tree, path):
    message = tree.open(path).query(0, kind=InfoType.QUOTA, tail=bytes(8))
    assert message.status not in (SmbStatus.SUCCESS, SmbStatus.BUFFER_OVERFLOW)


@QUOTA
@pytest.mark.case(
    "SMB-QUOTA-CONTROL", section="MS-FSCC 2.5.2", no_mutant_reason="smbd answers it to root alone"
)
def test_the_control_information_of_quotas_has_its_size(tree, path):
    message = tree.open(path).query(FsInfo.CONTROL, kind=InfoType.FILESYSTEM)
    if message.status in (*NONE_HERE, SmbStatus.INVALID_INFO_CLASS, SmbStatus.VOLUME_NOT_UPGRADED):
        pytest.skip("the file system has no quotas")
    if message.status == SmbStatus.ACCESS_DENIED:
        pytest.skip("the account may not query quotas")
    assert len(expect(message).buffer) == 48


# Security descriptors

SECURITY = pytest.mark.case(section="MS-SMB2 3.3.5.21.3")


def descriptor(opened, parts):
    return expect(opened.query(0, kind=InfoType.SECURITY, additional=parts)).buffer


@SECURITY
@pytest.mark.case("SMB-SD-SACL-DENIED", section="MS-FSA 2.1.5.14", kills=("accepts-query-info",))
def test_a_system_list_is_not_queried_without_the_access(tree, path):
    message = tree.open(path).query(0, kind=InfoType.SECURITY, additional=SACL_SECURITY)
    expect(message, SmbStatus.ACCESS_DENIED)


@SECURITY
@pytest.mark.parametrize(
    ("parts", "access"),
    [
        case("SMB-SD-SET-OWNER-DENIED", OWNER_SECURITY, Access.WRITE_DAC, kills=("accepts-set-info",)),
        case("SMB-SD-SET-SACL-DENIED", SACL_SECURITY, Access.WRITE_DAC, kills=("accepts-set-info",)),
        case("SMB-SD-SET-DACL-DENIED", DACL_SECURITY, Access.WRITE_OWNER, kills=("accepts-set-info",)),
    ],
)
def test_a_part_of_the_descriptor_is_not_set_without_its_access(tree, written, parts, access):
    name = written()
    data = descriptor(tree.open(name), OWNER_SECURITY | DACL_SECURITY)
    message = tree.create(name, access=access | Access.READ_CONTROL, disposition=Disposition.OPEN)
    if message.status == SmbStatus.ACCESS_DENIED:
        pytest.skip("the account does not get the other right")
    opened = tree.open(name, access=access | Access.READ_CONTROL, disposition=Disposition.OPEN)
    message = opened.set(0, data, kind=InfoType.SECURITY, additional=parts)
    if message.status != SmbStatus.ACCESS_DENIED and parts == OWNER_SECURITY:
        skip_without_security(opened)
    expect(message, SmbStatus.ACCESS_DENIED)


def first_entry_only(data):
    """Return a descriptor with the first entry of its access list (MS-DTYP 2.4.5, 2.4.6)."""
    (at,) = struct.unpack_from("<I", data, 16)
    (size,) = struct.unpack_from("<H", data, at + 10)
    entries = struct.pack("<BBHHH", data[at], 0, 8 + size, 1, 0) + data[at + 8 : at + 8 + size]
    return struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + entries


@SECURITY
@pytest.mark.case("SMB-SD-SET", kills=("security-not-set",))
def test_an_access_list_that_was_set_is_returned(tree, path):
    opened = tree.open(path, access=READ | Access.WRITE_DAC | Access.READ_CONTROL)
    before = descriptor(opened, DACL_SECURITY)
    if before[struct.unpack_from("<I", before, 16)[0] + 4] < 2:
        pytest.skip("the access list has one entry, so that none can be left out")
    message = opened.set(0, first_entry_only(before), kind=InfoType.SECURITY, additional=DACL_SECURITY)
    if message.status in NO_FSCTL:
        skip_without_security(opened)
    expect(message)
    assert descriptor(opened, DACL_SECURITY) != before
