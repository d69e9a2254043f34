"""Symbolic links that the client follows, and reparse points (MS-SMB2 2.2.2.2.1, MS-FSCC 2.1.2, 2.3)."""

from __future__ import annotations

import struct

import pytest

from storagetest.suites.conformance.smb2.support import READ, case
from storagetest.wire.smb2.codes import Dialect, Disposition, Fsctl, Options, SmbAttribute, SmbStatus
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.information import SYMLINK_TAG, decode_symlink_error, symlink

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 2.2.2.2.1", level="MUST")]

ITSELF = Options.OPEN_REPARSE_POINT
NO_LINKS = (SmbStatus.NOT_SUPPORTED, SmbStatus.INVALID_DEVICE_REQUEST, SmbStatus.NOT_IMPLEMENTED)
TARGET = "where\\it is"


def linked(tree, path):
    """Make ``path`` a symbolic link to ``TARGET``; return its open. Skip if the server has none."""
    opened = tree.open(path, options=ITSELF | Options.NON_DIRECTORY_FILE)
    message = opened.ioctl(Fsctl.SET_REPARSE_POINT, symlink(TARGET))
    if message.status in (*NO_LINKS, SmbStatus.NOT_A_REPARSE_POINT):
        pytest.skip("the server makes no symbolic links")
    expect(message)
    return opened


def stopped(tree, path):
    """Return the error of CREATE; skip if the server follows links itself."""
    message = tree.create(path, disposition=Disposition.OPEN)
    if message.status in (SmbStatus.OBJECT_NAME_NOT_FOUND, SmbStatus.OBJECT_PATH_NOT_FOUND):
        pytest.skip("the server follows symbolic links itself")
    expect(message, SmbStatus.STOPPED_ON_SYMLINK)
    return decode_symlink_error(message, tree.session.connection.settled.dialect)


@pytest.mark.parametrize(
    "dialect",
    [
        case(f"SMB-SYMLINK-NAME-{one:x}", one, kills=("symlink-name-other", "symlink-form-other"))
        for one in (Dialect.SMB_2_0_2, Dialect.SMB_3_0_2, Dialect.SMB_3_1_1)
    ],
)
def test_an_open_of_a_link_states_where_it_leads(bench, path, dialect):
    tree = bench.tree([dialect])
    expect(linked(tree, path).close())
    found = stopped(tree, path)
    assert (found.substitute, found.relative) == (TARGET, True)


@pytest.mark.case("SMB-SYMLINK-TAGS", kills=("symlink-tag-other",))
def test_the_error_has_the_tags_of_symbolic_links(tree, path):
    expect(linked(tree, path).close())
    found = stopped(tree, path)
    assert (found.error_tag, found.reparse_tag) == (0x4C4D5953, SYMLINK_TAG)


@pytest.mark.case("SMB-SYMLINK-UNPARSED", kills=("symlink-unparsed-other",))
def test_the_error_states_what_of_the_path_is_left(tree, path):
    expect(linked(tree, path).close())
    assert stopped(tree, path).unparsed == 0
    assert stopped(tree, f"{path}\\below\\it").unparsed == len("\\below\\it".encode("utf-16-le"))


@pytest.mark.case("SMB-SYMLINK-LENGTH", kills=("symlink-length-other",))
def test_the_error_has_its_own_length(tree, path):
    expect(linked(tree, path).close())
    found = stopped(tree, path)
    assert found.length == found.size - 4


@pytest.mark.case("SMB-SYMLINK-ITSELF", section="MS-FSA 2.1.5.1", kills=("symlink-attribute-lost",))
def test_a_link_itself_is_opened_on_request(tree, path):
    expect(linked(tree, path).close())
    opened = tree.open(path, access=READ, options=ITSELF, disposition=Disposition.OPEN)
    assert opened.message["attributes"] & SmbAttribute.REPARSE_POINT


@pytest.mark.case("SMB-REPARSE-GET", section="MS-FSCC 2.3, MS-FSA 2.1.5.10.14", kills=("reparse-data-other",))
def test_a_reparse_point_is_read_as_it_was_set(tree, path):
    message = expect(linked(tree, path).ioctl(Fsctl.GET_REPARSE_POINT))
    tag, size = struct.unpack_from("<IH", message.buffer)
    assert (tag, size) == (SYMLINK_TAG, len(message.buffer) - 8)
    assert TARGET.encode("utf-16-le") in message.buffer


@pytest.mark.case("SMB-REPARSE-NONE", section="MS-FSA 2.1.5.10.14", kills=("accepts-ioctl",))
def test_a_file_is_no_reparse_point(tree, path):
    message = tree.open(path).ioctl(Fsctl.GET_REPARSE_POINT)
    if message.status in NO_LINKS:
        pytest.skip("the server has no reparse points")
    expect(message, SmbStatus.NOT_A_REPARSE_POINT)
