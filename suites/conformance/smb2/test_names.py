"""Names: renames, links, deletions, alternate streams (MS-FSA 2.1.5.15, MS-FSCC 2.1.5, 2.4)."""

from __future__ import annotations

import struct

import pytest

from storagetest.suites.conformance.smb2.support import READ, WRITE, open_directory
from storagetest.wire.smb2.codes import (
    Access,
    Disposition,
    FileInfo,
    FsInfo,
    InfoType,
    Options,
    SmbAttribute,
    SmbShare,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect, make_directory

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-FSA 2.1.5.15.11", level="MUST")]

NOT_SET = ("accepts-set-info", "status-set-info")
GONE = (SmbStatus.OBJECT_NAME_NOT_FOUND,)
NAMED_STREAMS = 0x00040000
"""FILE_NAMED_STREAMS of the file system's attributes (MS-FSCC 2.5.1)."""


@pytest.fixture
def file(tree, path):
    """Return an open file whose content is its name."""
    return made(tree, path)


def made(tree, path, data=b"content"):
    opened = tree.open(path, disposition=Disposition.CREATE)
    expect(opened.write(data))
    return opened


def content(tree, path):
    """Return what is in the file ``path``."""
    opened = tree.open(path, access=READ, disposition=Disposition.OPEN)
    return expect(opened.read(100)).buffer


@pytest.mark.case("SMB-RENAME-01", kills=("rename-ignored",))
def test_a_renamed_file_has_the_new_name(tree, file, path):
    expect(file.rename(f"{path}-new"))
    assert content(tree, f"{path}-new") == b"content"


@pytest.mark.case("SMB-RENAME-02", kills=("rename-ignored",))
def test_a_renamed_file_has_no_longer_the_old_name(tree, file, path):
    expect(file.rename(f"{path}-new"))
    expect(tree.create(path, disposition=Disposition.OPEN), *GONE)


@pytest.mark.case("SMB-RENAME-03", kills=("rename-always-replaces", *NOT_SET, "rename-replaces"))
def test_a_name_that_exists_collides(tree, file, path):
    expect(made(tree, f"{path}-new", b"other").close())
    expect(file.rename(f"{path}-new"), SmbStatus.OBJECT_NAME_COLLISION)
    assert content(tree, f"{path}-new") == b"other"


@pytest.mark.case("SMB-RENAME-04", kills=("status-success-lost", "rename-ignored"))
def test_a_file_is_replaced_on_request(tree, file, path):
    expect(made(tree, f"{path}-new", b"other").close())
    expect(file.rename(f"{path}-new", replace=True))
    assert content(tree, f"{path}-new") == b"content"


@pytest.mark.case("SMB-RENAME-05", kills=NOT_SET)
def test_a_name_in_a_missing_directory_is_not_found(file, path):
    expect(file.rename(f"{path}-missing\\new"), SmbStatus.OBJECT_PATH_NOT_FOUND)


@pytest.mark.case("SMB-RENAME-06", kills=("accepts-set-info",))
def test_an_open_file_is_not_replaced(tree, file, path):
    made(tree, f"{path}-new")
    expect(file.rename(f"{path}-new", replace=True), SmbStatus.ACCESS_DENIED)


@pytest.mark.case("SMB-RENAME-07", kills=("rename-ignored",))
def test_a_directory_is_renamed(tree, directory):
    expect(made(tree, f"{directory}\\inner").close())
    opened = open_directory(tree, directory, access=READ | Access.DELETE)
    expect(opened.rename(f"{directory}-new"))
    assert content(tree, f"{directory}-new\\inner") == b"content"


@pytest.mark.case("SMB-RENAME-08", kills=("accepts-set-info",))
def test_a_directory_with_an_open_file_is_not_renamed(tree, directory):
    made(tree, f"{directory}\\inner")
    opened = open_directory(tree, directory, access=READ | Access.DELETE)
    expect(opened.rename(f"{directory}-new"), SmbStatus.ACCESS_DENIED)


@pytest.mark.case("SMB-RENAME-09", kills=NOT_SET)
def test_a_directory_is_no_replacement_of_a_file(tree, file, path):
    make_directory(tree, f"{path}-dir")
    expect(
        file.rename(f"{path}-dir", replace=True),
        SmbStatus.ACCESS_DENIED,
        SmbStatus.OBJECT_NAME_COLLISION,
        SmbStatus.FILE_IS_A_DIRECTORY,
    )


@pytest.mark.case("SMB-RENAME-10", kills=("read-data-changed",))
def test_a_renamed_file_stays_open(file, path):
    expect(file.rename(f"{path}-new"))
    assert expect(file.read(100)).buffer == b"content"


@pytest.mark.case("SMB-RENAME-11", kills=("status-success-lost",))
def test_a_rename_to_the_own_name_changes_nothing(tree, file, path):
    expect(file.rename(path))
    assert content(tree, path) == b"content"


@pytest.mark.case("SMB-RENAME-12", kills=NOT_SET)
def test_a_name_that_is_longer_than_the_data_is_refused(file):
    data = struct.pack("<B7xQI", 0, 0, 400) + "new".encode("utf-16-le")
    message = file.set(FileInfo.RENAME, data)
    expect(message, SmbStatus.INFO_LENGTH_MISMATCH, SmbStatus.INVALID_PARAMETER)


# Deletions

DELETES = pytest.mark.case(section="MS-FSA 2.1.5.15.3, 2.1.5.5")


@DELETES
@pytest.mark.case("SMB-DELETE-01", kills=("disposition-ignored",))
def test_a_file_to_be_deleted_is_gone_after_the_close(tree, file, path):
    expect(file.delete_on_close())
    expect(file.close())
    expect(tree.create(path, disposition=Disposition.OPEN), *GONE)


@DELETES
@pytest.mark.case("SMB-DELETE-02", kills=("disposition-ignored", "accepts-create"))
def test_a_file_stays_until_its_last_open_is_closed(tree, file, path):
    second = tree.open(path)
    expect(file.delete_on_close())
    expect(file.close())
    assert expect(second.read(100)).buffer == b"content"
    expect(tree.create(path, disposition=Disposition.OPEN), SmbStatus.DELETE_PENDING)
    expect(second.close())
    expect(tree.create(path, disposition=Disposition.OPEN), *GONE)


@DELETES
@pytest.mark.case("SMB-DELETE-03", kills=("accepts-set-info", "status-set-info"))
def test_a_directory_that_is_not_empty_is_not_deleted(tree, directory):
    expect(made(tree, f"{directory}\\inner").close())
    opened = open_directory(tree, directory, access=READ | Access.DELETE)
    expect(opened.delete_on_close(), SmbStatus.DIRECTORY_NOT_EMPTY)


@DELETES
@pytest.mark.case("SMB-DELETE-04", kills=("disposition-ignored",))
def test_an_empty_directory_is_deleted(tree, directory):
    opened = open_directory(tree, directory, access=READ | Access.DELETE)
    expect(opened.delete_on_close())
    expect(opened.close())
    message = tree.create(directory, disposition=Disposition.OPEN, options=Options.DIRECTORY_FILE)
    expect(message, *GONE)


@DELETES
@pytest.mark.case("SMB-DELETE-05", kills=("accepts-set-info", "status-set-info"))
def test_a_read_only_file_is_not_deleted(tree, path):
    opened = tree.open(path, attributes=SmbAttribute.READONLY, disposition=Disposition.CREATE)
    expect(opened.delete_on_close(), SmbStatus.CANNOT_DELETE)


@DELETES
@pytest.mark.case("SMB-DELETE-06", section="MS-FSA 2.1.5.1.1", kills=("accepts-create", "status-create"))
def test_a_read_only_file_is_not_created_to_be_deleted(tree, path):
    message = tree.create(
        path,
        attributes=SmbAttribute.READONLY,
        disposition=Disposition.CREATE,
        options=Options.DELETE_ON_CLOSE | Options.NON_DIRECTORY_FILE,
    )
    expect(message, SmbStatus.CANNOT_DELETE)


@DELETES
@pytest.mark.case("SMB-DELETE-07", section="MS-FSA 2.1.5.1.2", kills=("accepts-create",))
def test_a_read_only_file_is_not_opened_for_writing(tree, path):
    expect(tree.open(path, attributes=SmbAttribute.READONLY, disposition=Disposition.CREATE).close())
    message = tree.create(path, access=WRITE, disposition=Disposition.OPEN)
    expect(message, SmbStatus.ACCESS_DENIED)


@DELETES
@pytest.mark.case("SMB-DELETE-08", section="MS-FSA 2.1.5.1.2.2", kills=("share-ignored", "accepts-create"))
def test_a_file_opened_without_sharing_deletion_is_not_opened_to_be_deleted(tree, file, path):
    expect(file.close())
    tree.open(path, access=READ, share=SmbShare.READ | SmbShare.WRITE)
    message = tree.create(path, access=Access.DELETE, disposition=Disposition.OPEN)
    expect(message, SmbStatus.SHARING_VIOLATION)


@DELETES
@pytest.mark.case("SMB-DELETE-09", kills=("delete-on-close-ignored",))
def test_delete_on_close_waits_for_the_last_open(tree, path):
    options = Options.NON_DIRECTORY_FILE
    first = tree.open(path, options=options | Options.DELETE_ON_CLOSE)
    second = tree.open(path, options=options)
    expect(first.close())
    expect(second.close())
    expect(tree.create(path, disposition=Disposition.OPEN), *GONE)


@pytest.mark.case("SMB-LINK-01", section="MS-FSA 2.1.5.15.6", kills=("info-value-other",))
def test_a_link_is_the_same_file(tree, file, path):
    name = f"{path}-link".encode("utf-16-le")
    message = file.set(FileInfo.LINK, (struct.pack("<B7xQI", 0, 0, len(name)) + name).ljust(24, b"\0"))
    if message.status in (SmbStatus.NOT_SUPPORTED, SmbStatus.INVALID_DEVICE_REQUEST):
        pytest.skip("the file system has no hard links")
    expect(message)
    link = tree.open(f"{path}-link", disposition=Disposition.OPEN)
    numbers = [expect(each.query(FileInfo.INTERNAL)).buffer for each in (file, link)]
    assert numbers[0] == numbers[1]


# Alternate streams

STREAMS = pytest.mark.case(section="MS-FSCC 2.1.5.3, MS-FSA 2.1.5.1")


@pytest.fixture
def streams(file):
    """Return a file with content on a file system with streams."""
    data = expect(file.query(FsInfo.ATTRIBUTE, kind=InfoType.FILESYSTEM)).buffer
    if not int.from_bytes(data[:4], "little") & NAMED_STREAMS:
        pytest.skip("the file system has no alternate streams")
    return file


def stream_names(opened):
    """Return the names and sizes of the streams (MS-FSCC 2.4.49)."""
    data, found = expect(opened.query(FileInfo.STREAM)).buffer, {}
    while data:
        step, length, size = struct.unpack_from("<IIQ", data)
        found[data[24 : 24 + length].decode("utf-16-le")] = size
        data = data[step:] if step else b""
    return found


@STREAMS
@pytest.mark.case("SMB-STREAM-01", kills=("read-data-changed",))
def test_a_stream_has_its_own_data(tree, streams, path):
    made(tree, f"{path}:one", b"stream")
    assert content(tree, f"{path}:one") == b"stream"
    assert expect(streams.read(100)).buffer == b"content"


@STREAMS
@pytest.mark.case(
    "SMB-STREAM-02", section="MS-FSCC 2.4.49", kills=("stream-sizes-zero", "info-short", "stream-size-other")
)
def test_streams_are_listed_with_their_sizes(tree, streams, path):
    made(tree, f"{path}:one", b"stream")
    assert stream_names(streams) == {"::$DATA": 7, ":one:$DATA": 6}


@STREAMS
@pytest.mark.usefixtures("streams")
@pytest.mark.case("SMB-STREAM-03", kills=("read-data-changed",))
def test_the_unnamed_stream_is_the_file(tree, path):
    assert content(tree, f"{path}::$DATA") == b"content"


@STREAMS
@pytest.mark.usefixtures("streams")
@pytest.mark.case("SMB-STREAM-04", kills=("read-data-changed",))
def test_the_type_of_a_stream_may_be_named(tree, path):
    made(tree, f"{path}:one", b"stream")
    assert content(tree, f"{path}:one:$DATA") == b"stream"


@STREAMS
@pytest.mark.usefixtures("streams")
@pytest.mark.case("SMB-STREAM-05", kills=("accepts-create", "status-create"))
def test_a_stream_that_is_not_there_is_not_found(tree, path):
    expect(tree.create(f"{path}:none", disposition=Disposition.OPEN), *GONE)


@STREAMS
@pytest.mark.usefixtures("streams")
@pytest.mark.case("SMB-STREAM-06", kills=("accepts-create", "status-create"))
def test_an_unknown_type_of_stream_is_an_invalid_name(tree, path):
    message = tree.create(f"{path}:one:$NONE")
    expect(message, SmbStatus.OBJECT_NAME_INVALID, SmbStatus.INVALID_PARAMETER)


@STREAMS
@pytest.mark.case("SMB-STREAM-07", kills=("disposition-ignored",))
def test_a_deleted_stream_leaves_the_file(tree, streams, path):
    stream = made(tree, f"{path}:one", b"stream")
    expect(stream.delete_on_close())
    expect(stream.close())
    assert stream_names(streams) == {"::$DATA": 7}


@STREAMS
@pytest.mark.case("SMB-STREAM-08", kills=("disposition-ignored",))
def test_a_deleted_file_has_no_streams(tree, streams, path):
    expect(made(tree, f"{path}:one", b"stream").close())
    expect(streams.delete_on_close())
    expect(streams.close())
    expect(tree.create(f"{path}:one", disposition=Disposition.OPEN), *GONE)
