"""What several opens or several parts of a request have to do with each other.

Opens that state what another one has changed (MS-FSA 2.1.5.3, 2.1.5.12.27), chunks of one copy (MS-SMB2
3.3.5.15.6), compounds that begin with an open (3.3.5.2.7.2), and parts of a request that are ignored.
"""

from __future__ import annotations

import random
import struct

import pytest

from storagetest.suites.conformance.smb2.handles import with_credits
from storagetest.suites.conformance.smb2.support import NO_FSCTL, case, chunks, resume_key
from storagetest.wire.smb2.codes import (
    NO_FILE,
    Disposition,
    FileInfo,
    Fsctl,
    FsInfo,
    InfoType,
    Lock,
    Options,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import request

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(level="MUST", section="MS-SMB2 3.3.5.20")]

POSTQUERY = 1
"""SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB (2.2.15)."""


@pytest.mark.case("SMB-COPY-ORDER", section="MS-SMB2 3.3.5.15.6", kills=("chunks-reversed",))
def test_a_chunk_copies_what_the_chunk_before_it_has_written(tree, path):
    """Chunks are copied starting with the first one: the second one's source is the first one's target."""
    file = tree.open(path)
    data = random.Random(7).randbytes(300)  # noqa: S311  # data, no secret
    expect(file.write(data))
    each = ((0, 100, 50), (100, 200, 50), (200, 250, 50))
    expect(file.ioctl(Fsctl.SRV_COPYCHUNK, chunks(resume_key(file), *each), max_output=12))
    wanted = bytearray(data)
    for start, at, length in each:
        wanted[at : at + length] = wanted[start : start + length]
    assert expect(file.read(300)).buffer == bytes(wanted)


@pytest.mark.case("SMB-LOCK-BEYOND", section="MS-FSA 2.1.5.8", kills=("accepts-lock", "status-lock"))
def test_a_lock_beyond_the_largest_offset_is_no_range(tree, written):
    """A range with a byte beyond 64 bits is STATUS_INVALID_LOCK_RANGE."""
    file = tree.open(written(), disposition=Disposition.OPEN)
    kind = Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY
    expect(file.lock(((1 << 64) - 5, 6, kind)), SmbStatus.INVALID_LOCK_RANGE)


@pytest.mark.parametrize(
    "kind",
    [
        case("SMB-INFO-INPUT", InfoType.FILE, kills=("query-input-refused",)),
        case("SMB-FS-INPUT", InfoType.FILESYSTEM, kills=("query-input-refused",)),
    ],
)
def test_an_input_buffer_that_a_query_does_not_need_is_ignored(tree, written, kind):
    """InputBufferLength is ignored but for quotas and extended attributes."""
    file = tree.open(written(), disposition=Disposition.OPEN)
    number = FileInfo.STANDARD if kind == InfoType.FILE else FsInfo.VOLUME
    expect(file.query(number, kind=kind, tail=b"unused input"))


@pytest.mark.case("SMB-SIZE-KEPT", section="MS-FSA 2.1.5.12.27", kills=("size-kept",))
def test_an_open_states_the_size_that_another_one_has_made(tree, other, written):
    """EndOfFile is that of the file, also if an open has stated another one before."""
    name = written()
    one, two = (each.open(name, disposition=Disposition.OPEN) for each in (tree, other))
    for size in (10, 5000, 3, 70_000):
        expect(two.set_size(size))
        for info_class, at in ((FileInfo.STANDARD, 8), (FileInfo.NETWORK_OPEN, 40), (FileInfo.ALL, 48)):
            data = expect(one.query(info_class)).buffer
            found = int.from_bytes(data[at : at + 8], "little")
            assert found == size, f"EndOfFile of {info_class.name} is {found}, and the other open set {size}"


@pytest.mark.case("SMB-READ-KEPT", section="MS-FSA 2.1.5.3", kills=("data-kept",))
def test_an_open_reads_again_what_another_one_has_written(tree, other, written):
    """READ of one range returns what was written last, by whichever open."""
    name = written()
    one, two = (each.open(name, disposition=Disposition.OPEN) for each in (tree, other))
    for data in (b"0123456789", b"abcdefghij", b"0123456789", bytes(10)):
        expect(two.write(data))
        assert expect(one.read(10)).buffer == data


@pytest.mark.case("SMB-ZERO-BEYOND", section="MS-FSA 2.1.5.10.40", kills=("zero-extends",))
def test_zeroes_beyond_the_end_leave_the_size(tree, path):
    """FSCTL_SET_ZERO_DATA of a range that begins in the file, and of one behind it, changes no size."""
    file = tree.open(path)
    expect(file.write(b"0123456789"))
    for start, end in ((5, 5000), (8000, 9000)):
        done = file.ioctl(Fsctl.SET_ZERO_DATA, struct.pack("<QQ", start, end))
        if done.status in NO_FSCTL:
            pytest.skip("the server has no FSCTL_SET_ZERO_DATA (MS-FSA 2.1.5.10.40)")
        expect(done)
        size = int.from_bytes(expect(file.query(FileInfo.STANDARD)).buffer[8:16], "little")
        assert size == 10, f"EndOfFile is {size} after zeroes from {start} to {end}"
    assert expect(file.read(20)).buffer == b"01234" + bytes(5)


@pytest.mark.case("SMB-DEL-SECOND", section="MS-FSA 2.1.5.5", kills=("delete-of-second-lost",))
def test_delete_on_close_of_a_later_open_deletes_the_file(tree, other, written):
    """The close of that open marks the file; the last close deletes it."""
    name = written()
    first = tree.open(name, disposition=Disposition.OPEN)
    options = Options.NON_DIRECTORY_FILE | Options.DELETE_ON_CLOSE
    second = other.open(name, disposition=Disposition.OPEN, options=options)
    expect(tree.open(name, disposition=Disposition.OPEN).close())
    expect(second.close())
    expect(tree.create(name, disposition=Disposition.OPEN), SmbStatus.DELETE_PENDING)
    assert expect(first.read(10)).buffer == b"0123456789"
    expect(first.close())
    expect(tree.create(name, disposition=Disposition.OPEN), SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.case("SMB-COMP-OPEN-FIRST", section="MS-SMB2 3.3.5.2.7.2", kills=("related-to-create-alone",))
def test_related_requests_use_the_file_of_a_first_one_that_is_no_create(tree, written):
    """The FileId is that of the request before, whatever its command."""
    file = tree.open(written(), disposition=Disposition.OPEN)
    with_credits(tree, 4)
    mids = tree.send(
        request(SmbCommand.WRITE, b"abc", offset=10, file_id=file.file_id),
        request(SmbCommand.READ, length=6, offset=7, file_id=NO_FILE, padding=80),
        request(SmbCommand.CLOSE, flags=POSTQUERY, file_id=NO_FILE),
        related=True,
    )
    done = [expect(tree.receive(mid)) for mid in mids]
    assert done[0]["count"] == 3
    assert done[1].buffer == b"789abc"
    assert done[2]["end_of_file"] == 13
