"""LOCK and server-side copy (MS-SMB2 3.3.5.14, 3.3.5.15.5, 3.3.5.15.6)."""

from __future__ import annotations

import struct

import pytest

from storagetest.suites.conformance.smb2.support import READ, case, chunks, open_directory, resume_key
from storagetest.wire.smb2.caching import is_held
from storagetest.wire.smb2.codes import Fsctl, Lock, SmbStatus
from storagetest.wire.smb2.harness import expect

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.14", level="MUST")]

LOCKS = pytest.mark.case(section="MS-SMB2 3.3.5.14")
NOW = Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY


@LOCKS
@pytest.mark.case("SMB-LOCK-01", kills=("accepts-lock", "status-lock"))
def test_an_exclusive_lock_excludes_another_open(tree, written):
    name = written()
    expect(tree.open(name).lock((0, 5, NOW)))
    expect(tree.open(name).lock((4, 1, NOW)), SmbStatus.LOCK_NOT_GRANTED)


@LOCKS
@pytest.mark.case(
    "SMB-LOCK-02",
    kills=(
        "shared-lock-exclusive",
        "status-success-lost",
    ),
)
def test_shared_locks_overlap(tree, written):
    name = written()
    shared = Lock.SHARED | Lock.FAIL_IMMEDIATELY
    expect(tree.open(name).lock((0, 5, shared)))
    expect(tree.open(name).lock((0, 5, shared)))


@LOCKS
@pytest.mark.case("SMB-LOCK-03", kills=("unlock-not-locked", "accepts-lock", "status-lock"))
def test_what_is_not_locked_is_not_unlocked(tree, written):
    expect(tree.open(written()).lock((0, 5, Lock.UNLOCK)), SmbStatus.RANGE_NOT_LOCKED)


@LOCKS
@pytest.mark.case("SMB-LOCK-04", kills=("accepts-read", "status-read"))
def test_a_locked_range_is_not_read_by_another_open(tree, written):
    name = written()
    expect(tree.open(name).lock((0, 5, NOW)))
    expect(tree.open(name).read(1), SmbStatus.FILE_LOCK_CONFLICT)


@LOCKS
@pytest.mark.case("SMB-LOCK-05", kills=("accepts-write", "status-write"))
def test_a_locked_range_is_not_written_by_another_open(tree, written):
    name = written()
    expect(tree.open(name).lock((0, 5, Lock.SHARED | Lock.FAIL_IMMEDIATELY)))
    expect(tree.open(name).write(b"x"), SmbStatus.FILE_LOCK_CONFLICT)


@LOCKS
@pytest.mark.case("SMB-LOCK-06", level="SHOULD", kills=("accepts-lock", "status-lock"))
def test_a_lock_count_of_zero_is_an_invalid_parameter(tree, written):
    expect(tree.open(written()).lock((0, 1, NOW), over={"lock_count": 0}), SmbStatus.INVALID_PARAMETER)


@LOCKS
@pytest.mark.case(
    "SMB-LOCK-07", section="MS-SMB2 3.3.5.14.2", level="SHOULD", kills=("accepts-lock", "status-lock")
)
def test_a_lock_without_a_kind_is_an_invalid_parameter(tree, written):
    expect(tree.open(written()).lock((0, 1, 0)), SmbStatus.INVALID_PARAMETER)


@LOCKS
@pytest.mark.case("SMB-LOCK-08", kills=("status-success-lost",))
def test_a_close_releases_the_locks(tree, written):
    name = written()
    first = tree.open(name)
    expect(first.lock((0, 5, NOW)))
    expect(first.close())
    expect(tree.open(name).lock((0, 5, NOW)))


COPY = pytest.mark.case(section="MS-SMB2 3.3.5.15.6")


@COPY
@pytest.mark.case("SMB-COPY-01", kills=("copy-count-other",))
def test_a_chunk_is_copied(tree, written, path):
    source, target = tree.open(written()), tree.open(f"{path}-copy")
    message = expect(target.ioctl(Fsctl.SRV_COPYCHUNK, chunks(resume_key(source), (2, 0, 5)), max_output=12))
    assert struct.unpack("<III", message.buffer) == (1, 0, 5)
    assert expect(target.read(10)).buffer == b"23456"


@COPY
@pytest.mark.case("SMB-COPY-02", no_mutant_reason="smbd breaks this rule itself")
def test_an_unknown_resume_key_is_not_found(tree, other, path):
    resume_key(
        other.open(f"{path}-other")
    )  # a connection of its own: smbd 4.17 treats the first request apart
    message = tree.open(path).ioctl(Fsctl.SRV_COPYCHUNK, chunks(b"\x77" * 24, (0, 0, 5)), max_output=12)
    expect(message, SmbStatus.OBJECT_NAME_NOT_FOUND)


@COPY
@pytest.mark.case("SMB-COPY-03", kills=("copy-count-other",))
def test_chunks_are_copied_in_their_order(tree, written, path):
    source, target = tree.open(written()), tree.open(f"{path}-copy")
    data = chunks(resume_key(source), (0, 5, 5), (5, 0, 5))
    message = expect(target.ioctl(Fsctl.SRV_COPYCHUNK, data, max_output=12))
    assert struct.unpack("<III", message.buffer) == (2, 0, 10)
    assert expect(target.read(10)).buffer == b"5678901234"


@COPY
@pytest.mark.case("SMB-COPY-04", kills=("accepts-ioctl", "ioctl-length-ignored"))
def test_a_buffer_shorter_than_the_counts_is_an_invalid_parameter(tree, written, path):
    source, target = tree.open(written()), tree.open(f"{path}-copy")
    message = target.ioctl(Fsctl.SRV_COPYCHUNK, chunks(resume_key(source), (0, 0, 5)), max_output=8)
    expect(message, SmbStatus.INVALID_PARAMETER)


@COPY
@pytest.mark.case("SMB-COPY-05", section="MS-SMB2 3.3.5.15.6.2", kills=("copy-limits-zero",))
def test_a_chunk_of_zero_bytes_is_answered_with_the_limits(tree, written, path):
    source, target = tree.open(written()), tree.open(f"{path}-copy")
    message = target.ioctl(Fsctl.SRV_COPYCHUNK, chunks(resume_key(source), (0, 0, 0)), max_output=12)
    expect(message, SmbStatus.INVALID_PARAMETER)
    count, size, total = struct.unpack("<III", message.buffer)
    assert count > 0
    assert size > 0
    assert total >= size


@COPY
@pytest.mark.case("SMB-COPY-06", kills=("access-more",))
def test_nothing_is_copied_to_a_file_that_may_not_be_written(tree, written, path):
    expect(tree.open(f"{path}-copy").close())
    source, target = tree.open(written()), tree.open(f"{path}-copy", access=READ)
    message = target.ioctl(Fsctl.SRV_COPYCHUNK, chunks(resume_key(source), (0, 0, 5)), max_output=12)
    expect(message, SmbStatus.ACCESS_DENIED)


@COPY
@pytest.mark.case("SMB-COPY-07", section="MS-SMB2 3.3.5.15.5", kills=("resume-key-changes",))
def test_the_resume_key_of_an_open_stays(tree, written):
    source = tree.open(written())
    assert resume_key(source) == resume_key(source)


@LOCKS
@pytest.mark.case("SMB-LOCK-09", section="MS-SMB2 3.3.5.14.2", kills=("lock-short",))
def test_every_byte_of_a_range_is_locked(tree, written):
    name = written()
    expect(tree.open(name).lock((0, 5, NOW)))
    expect(tree.open(name).lock((4, 1, NOW)), SmbStatus.LOCK_NOT_GRANTED)
    expect(tree.open(name).lock((5, 1, NOW)))


@LOCKS
@pytest.mark.case("SMB-LOCK-10", section="MS-SMB2 3.3.5.14.2", kills=("lock-exclusive-always",))
def test_a_shared_lock_is_read_by_another_open(tree, written):
    name = written()
    expect(tree.open(name).lock((0, 5, Lock.SHARED | Lock.FAIL_IMMEDIATELY)))
    expect(tree.open(name).read(5))


@LOCKS
@pytest.mark.case("SMB-LOCK-11", section="MS-SMB2 3.3.5.14.2", kills=("accepts-lock", "lock-shared-always"))
def test_an_exclusive_lock_is_not_granted_on_a_shared_one(tree, written):
    name = written()
    expect(tree.open(name).lock((0, 5, Lock.SHARED | Lock.FAIL_IMMEDIATELY)))
    expect(tree.open(name).lock((0, 5, NOW)), SmbStatus.LOCK_NOT_GRANTED)


@LOCKS
@pytest.mark.case("SMB-LOCK-12", section="MS-SMB2 3.3.5.14.2", kills=("accepts-lock",))
def test_the_locks_of_a_refused_request_are_released(tree, written):
    name = written()
    expect(tree.open(name).lock((5, 1, NOW)))
    expect(tree.open(name).lock((0, 1, NOW), (5, 1, NOW)), SmbStatus.LOCK_NOT_GRANTED)
    expect(tree.open(name).lock((0, 1, NOW)))


@LOCKS
@pytest.mark.case("SMB-LOCK-13", section="MS-SMB2 3.3.5.14.2", kills=("accepts-lock", "status-lock"))
def test_an_unlock_among_locks_is_an_invalid_parameter(tree, written):
    message = tree.open(written()).lock((0, 1, NOW), (0, 1, Lock.UNLOCK))
    expect(message, SmbStatus.INVALID_PARAMETER)


@LOCKS
@pytest.mark.case("SMB-LOCK-14", section="MS-SMB2 3.3.5.14.1", kills=("accepts-lock", "status-lock"))
def test_a_lock_among_unlocks_is_an_invalid_parameter(tree, written):
    file = tree.open(written())
    expect(file.lock((0, 1, NOW)))
    expect(file.lock((0, 1, Lock.UNLOCK), (0, 1, NOW)), SmbStatus.INVALID_PARAMETER)


@LOCKS
@pytest.mark.case("SMB-LOCK-15", section="MS-SMB2 3.3.5.14.2", kills=("lock-fails-at-once",))
def test_a_lock_waits_for_another_to_be_released(tree, other, written):
    name = written()
    first, second = tree.open(name), other.open(name)
    expect(first.lock((0, 5, NOW)))
    mid = other.send(second.lock_request((0, 5, Lock.EXCLUSIVE)))[0]
    assert is_held(other, mid)
    expect(first.lock((0, 5, Lock.UNLOCK)))
    expect(other.receive(mid))


@LOCKS
@pytest.mark.case("SMB-LOCK-16", section="MS-SMB2 3.3.5.16", kills=("accepts-lock", "status-lock"))
def test_a_lock_that_waits_is_cancelled(tree, other, written):
    name = written()
    expect(tree.open(name).lock((0, 5, NOW)))
    mid = other.send(other.open(name).lock_request((0, 5, Lock.EXCLUSIVE)))[0]
    other.session.connection.receive_interim(mid)
    other.session.connection.cancel(mid, channel=other.session.channel, tree=other.tree_id)
    expect(other.receive(mid), SmbStatus.CANCELLED)


@LOCKS
@pytest.mark.case("SMB-LOCK-17", kills=("read-data-changed",))
def test_a_locked_range_is_read_by_its_owner(tree, written):
    file = tree.open(written())
    expect(file.lock((0, 5, NOW)))
    assert expect(file.read(5)).buffer == b"01234"


@LOCKS
@pytest.mark.case("SMB-LOCK-18", section="MS-FSA 2.1.5.9", kills=("accepts-lock", "status-lock"))
def test_a_part_of_a_range_is_not_unlocked(tree, written):
    file = tree.open(written())
    expect(file.lock((0, 5, NOW)))
    expect(file.lock((0, 2, Lock.UNLOCK)), SmbStatus.RANGE_NOT_LOCKED)


@pytest.mark.parametrize(
    "flags",
    [
        case("SMB-LOCK-DIRECTORY", NOW, kills=("directory-locked",), section="MS-FSA 2.1.5.8"),
        case("SMB-UNLOCK-DIRECTORY", Lock.UNLOCK, kills=("directory-locked",), section="MS-FSA 2.1.5.9"),
    ],
)
def test_no_range_of_a_directory_is_locked(tree, directory, flags):
    """Byte-range locks are those of data: a lock and an unlock of a directory are refused."""
    message = open_directory(tree, directory).lock((0, 1, flags))
    # MS-FSA names the first; a server that asks no object store for it returns the second.
    expect(message, SmbStatus.INVALID_PARAMETER, SmbStatus.INVALID_DEVICE_REQUEST)
