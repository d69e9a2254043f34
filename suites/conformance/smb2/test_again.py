"""What holds the second time, at large sizes, in a later part of a compound and after a lost connection.

MS-SMB2 3.3, MS-FSA 2.1, MS-FSCC 2.3: also the control codes of sparse files.
"""

from __future__ import annotations

import os
import random
import struct

import pytest

from storagetest.suites.conformance.smb2.handles import drop, durable, fill, reconnected, with_credits
from storagetest.suites.conformance.smb2.support import (
    NO_FSCTL,
    case,
    chunks,
    open_directory,
    resume_key,
)
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.client import create_request
from storagetest.wire.smb2.codes import (
    NO_FILE,
    RESTART_SCANS,
    SIGNING_ENABLED,
    Access,
    Capability,
    Dialect,
    Disposition,
    FileInfo,
    Flags,
    Fsctl,
    Lock,
    SmbCommand,
    SmbShare,
    SmbStatus,
)
from storagetest.wire.smb2.connection import DIALECTS
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.information import directory_entries
from storagetest.wire.smb2.message import request

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(level="MUST", section="MS-SMB2 3.3.5.12")]

LARGEST = 1 << 20
"""Bytes of the largest READ and WRITE, or the server's limit if it is less (chosen)."""

YEAR_1990, YEAR_2200 = 122_724_288_000_000_000, 188_994_816_000_000_000
"""FILETIME of times between which any server's clock is."""


def noise(size):
    return random.Random(size).randbytes(size)  # noqa: S311  # data, no secret


# Sizes


@pytest.mark.parametrize(
    "protection",
    [
        case(
            "SMB-SIZES-PLAIN",
            "plain",
            kills=(
                "write-count-16",
                "read-short",
            ),
        ),
        case("SMB-SIZES-SIGNED", "signed", kills=("signed-large-broken",), section="MS-SMB2 3.1.4.1"),
        case(
            "SMB-SIZES-SEALED",
            "sealed",
            kills=("sealed-large-broken",),
            section="MS-SMB2 3.1.4.3",
            builds_on=("SMB-ENC-03",),
        ),
    ],
)
def test_data_of_every_size_is_written_and_read(bench, endpoint, path, protection):
    sealed = protection == "sealed"
    session = bench.session([Dialect.SMB_3_1_1], signs=protection == "signed", encrypts=sealed)
    limits = session.connection.settled
    if sealed and not session.channel.encrypts:
        pytest.skip("the server has no encryption")
    large = limits.capabilities & Capability.LARGE_MTU
    most = min(limits.message["max_read"], limits.message["max_write"], LARGEST if large else 65536)
    file = session.tree(endpoint.share).open(path)
    near = [4096, 32768, 65536, 131072, 524288, most]
    for size in sorted({each for one in near for each in (one - 1, one, one + 1) if each <= most}):
        if (size - 1) // 65536 + 1 > session.connection.granted:
            pytest.skip(f"{session.connection.granted} credits are granted, too few for {size} bytes")
        data = noise(size)
        assert expect(file.write(data))["count"] == size
        assert expect(file.read(size)).buffer == data, f"{size} bytes are read as others"


# Credits


@pytest.mark.parametrize(
    "command",
    [
        case("SMB-CRED-LARGE-READ", SmbCommand.READ, kills=("large-read-no-credits",)),
        case("SMB-CRED-LARGE-WRITE", SmbCommand.WRITE, kills=("large-write-no-credits",)),
        case("SMB-CRED-LARGE-LIST", SmbCommand.QUERY_DIRECTORY, kills=("large-list-no-credits",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.1.2")
def test_requests_of_several_credits_never_leave_the_client_without_one(tree, directory, command):
    connection = tree.session.connection
    if not connection.settled.capabilities & Capability.LARGE_MTU:
        pytest.skip("the server has no multi-credit requests")
    lists = command == SmbCommand.QUERY_DIRECTORY
    opened = open_directory(tree, directory) if lists else tree.open(f"{directory}\\file")
    if command == SmbCommand.READ:
        expect(opened.write(b"data"))
    names = {SmbCommand.READ: "max_read", SmbCommand.WRITE: "max_write"}
    most = int(connection.settled.message[names.get(command, "max_transact")]) // 65536
    for _ in range(2 * connection.granted):
        charge = min(4, most, connection.granted)
        connection.asks = charge
        size = 65536 * charge
        if command == SmbCommand.READ:
            expect(opened.read(size))
        elif command == SmbCommand.WRITE:
            expect(opened.write(bytes(size)))
        else:
            expect(opened.list(flags=RESTART_SCANS, length=size))
        assert connection.granted >= 1, f"a {command.name} of {charge} credits leaves none"


# Negotiation


@pytest.mark.parametrize(
    "dialect",
    [
        case(f"SMB-NEG-TIME-{name}", dialect, kills=("system-time-zero",) if dialect < 0x311 else ())
        for name, dialect in zip(("202", "21", "30", "302", "311"), DIALECTS, strict=True)
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.4", no_mutant_reason="a proxy cannot change a response of 3.1.1")
def test_system_time_is_a_time(bench, dialect):
    message = bench.connect().negotiate([dialect]).message
    assert YEAR_1990 < message["system_time"] < YEAR_2200, f"SystemTime is {message['system_time']}"


@pytest.mark.parametrize(
    "dialect",
    [
        case(f"SMB-NEG-SIGNING-{name}", dialect, kills=kills)
        for name, dialect, kills in (
            ("202", Dialect.SMB_2_0_2, ("security-mode-zero",)),
            ("21", Dialect.SMB_2_1, ("security-mode-zero",)),
            ("30", Dialect.SMB_3_0, ("security-mode-zero",)),
            ("302", Dialect.SMB_3_0_2, ("signing-not-enabled-302", "security-mode-zero")),
        )
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.4")
def test_signing_is_enabled_in_each_dialect(bench, dialect):
    assert bench.connect().negotiate([dialect]).message["security_mode"] & SIGNING_ENABLED


# Compounds


@pytest.mark.parametrize("signs", [case("SMB-COMP-SIGNED", True, kills=("compound-second-signature",))])
@pytest.mark.case(section="MS-SMB2 3.3.4.1.1")
def test_each_response_of_a_signed_compound_is_signed(bench, endpoint, path, signs):
    tree = bench.session(signs=signs).tree(endpoint.share)
    file = tree.open(path)
    expect(file.write(b"0123456789"))
    reads = [request(SmbCommand.READ, length=1 + at, offset=at, file_id=file.file_id) for at in range(4)]
    for related in (False, True):
        with_credits(tree, len(reads))
        parts = [reads[0], *(one.override(file_id=NO_FILE) if related else one for one in reads[1:])]
        for at, mid in enumerate(tree.send(*parts, related=related)):
            assert expect(tree.receive(mid)).buffer == b"0123456789"[at : 2 * at + 1]


@pytest.mark.parametrize(
    "count",
    [
        case(
            f"SMB-COMP-LATER-{count}",
            count,
            kills=("compound-later-closed",),
            builds_on=("SMB-COMP-LATER-2",) if count > 2 else (),
        )
        for count in (2, 3, 6)
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.2.7.2")
def test_every_later_request_of_a_compound_uses_the_file_of_the_first(tree, path, count):
    """A related request uses the FileId of the one before it, at any place of the compound."""
    reads = [
        request(SmbCommand.READ, length=2, offset=at, file_id=NO_FILE, padding=80) for at in range(count)
    ]
    with_credits(tree, count + 4)
    mids = tree.send(
        create_request(path),
        request(SmbCommand.WRITE, b"0123456789", file_id=NO_FILE),
        *reads,
        request(SmbCommand.FLUSH, file_id=NO_FILE),
        request(SmbCommand.CLOSE, file_id=NO_FILE),
        related=True,
    )
    done = [expect(tree.receive(mid)) for mid in mids]
    assert [one.buffer for one in done[2:-2]] == [b"0123456789"[at : at + 2] for at in range(count)]
    message = tree.call(request(SmbCommand.READ, length=1, file_id=bytes(done[0]["file_id"])))
    expect(message, SmbStatus.FILE_CLOSED)


# Asynchronous responses


def blocked_lock(tree, other, path):
    """Return the id of a lock that waits, and what lets it go on."""
    holder = tree.open(path, share=SmbShare.ALL)
    waiter = other.open(path, share=SmbShare.ALL, disposition=Disposition.OPEN)
    expect(holder.lock((0, 10, Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY)))
    mid = other.send(waiter.lock_request((0, 10, Lock.EXCLUSIVE)))[0]
    return mid, lambda: expect(holder.lock((0, 10, Lock.UNLOCK)))


@pytest.mark.case("SMB-ASYNC-LOCK", section="MS-SMB2 3.3.4.1", kills=("final-async-id-other",))
def test_the_final_response_to_a_lock_has_the_async_id_of_the_interim_one(tree, other, path):
    mid, release = blocked_lock(tree, other, path)
    interim = other.session.connection.receive_interim(mid)
    if interim is None:
        pytest.skip("the lock is not answered with an interim response")
    release()
    final = expect(other.receive(mid))
    assert final.flags & Flags.ASYNC, f"{final.summary()} is not asynchronous"
    assert final["async_id"] == interim["async_id"]


@pytest.mark.case(
    "SMB-LOCK-EACH",
    section="MS-SMB2 3.3.5.14.2",
    kills=("lock-first-of-two",),
    builds_on=("SMB-LOCK-01",),
)
def test_each_range_of_a_lock_is_locked(tree, other, directory):
    path = f"{directory}\\file"
    holder = tree.open(path, share=SmbShare.ALL)
    rival = other.open(path, share=SmbShare.ALL, disposition=Disposition.OPEN)
    now = Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY
    expect(holder.lock((0, 10, now), (20, 10, now), (40, 10, now)))
    for offset in (0, 20, 40):
        expect(rival.lock((offset + 5, 1, now)), SmbStatus.LOCK_NOT_GRANTED)
    expect(rival.lock((10, 10, now)))


@pytest.mark.case(
    "SMB-UNLOCK-EACH",
    section="MS-SMB2 3.3.5.14.1",
    kills=("unlock-first-of-two",),
    builds_on=("SMB-LOCK-01",),
)
def test_each_range_of_an_unlock_is_unlocked(tree, other, directory):
    """The server unlocks the ranges of the request one after the other, and leaves other locks."""
    path = f"{directory}\\file"
    holder = tree.open(path, share=SmbShare.ALL)
    rival = other.open(path, share=SmbShare.ALL, disposition=Disposition.OPEN)
    now = Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY
    expect(holder.lock((0, 10, now), (20, 10, now), (40, 10, now)))
    expect(holder.lock((0, 10, Lock.UNLOCK), (20, 10, Lock.UNLOCK)))
    expect(rival.lock((40, 10, now)), SmbStatus.LOCK_NOT_GRANTED)
    for offset in (0, 20):
        expect(rival.lock((offset, 10, now)))


# Listings


@pytest.mark.case("SMB-LIST-RESTART-AGAIN", section="MS-SMB2 3.3.5.18", kills=("restart-second-ignored",))
def test_each_of_several_restarts_begins_at_the_first_name(tree, directory):
    wanted = sorted(f"name-{at}" for at in range(9))
    for name in wanted:
        expect(tree.open(f"{directory}\\{name}").close())
    opened = open_directory(tree, directory)
    for _ in range(4):
        message = expect(opened.list(flags=RESTART_SCANS, length=600))
        found = [one.name for one in directory_entries(message.buffer)]
        while (message := opened.list(length=600)).status == SmbStatus.SUCCESS:
            page = [one.name for one in directory_entries(message.buffer)]
            assert page, "a response without an entry that is not at the end"
            found += page
            assert len(found) < 100, "the listing does not end"
        assert sorted(set(found) - {".", ".."}) == wanted


NAMES = ("a", "ab", "abc", "abcd", "b", "xbc", "xybc", "a.c", "abbc")
QUESTION = ("question-mark-is-star",)
PATTERNS = {
    "ONE": ("?", {"a", "b"}),
    "THREE": ("???", {"abc", "xbc", "a.c"}),
    "INSIDE": ("a?c", {"abc", "a.c"}),
    "BEFORE": ("?bc", {"abc", "xbc"}),
    "STAR": ("?b*", {"ab", "abc", "abcd", "xbc", "abbc"}),
}


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        case(f"SMB-QUESTION-{name}", *each, kills=("question-mark-is-star",))
        for name, each in PATTERNS.items()
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.4.4")
def test_a_question_mark_matches_one_character(tree, directory, pattern, wanted):
    for name in NAMES:
        expect(tree.open(f"{directory}\\{name}").close())
    opened = open_directory(tree, directory)
    found = directory_entries(expect(opened.list(pattern=pattern)).buffer)
    assert {one.name for one in found} - {".", ".."} == wanted


# Reconnects

ZEROED = ("reconnect-size-zero",)


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        case("SMB-RECONNECT-ANSWER-V1", 1, Dialect.SMB_3_0, kills=ZEROED, section="MS-SMB2 3.3.5.9.7"),
        case("SMB-RECONNECT-ANSWER-V2", 2, Dialect.SMB_3_1_1, kills=ZEROED, section="MS-SMB2 3.3.5.9.12"),
    ],
)
def test_the_response_to_a_reconnect_has_the_sizes_and_times_of_the_file(bench, path, version, dialect):
    client, guid = os.urandom(16), os.urandom(16)
    file = durable(bench.tree([dialect], guid=client), path, guid if version == 2 else None)
    expect(file.write(b"0123456789"))
    drop(file)
    context = c.reconnect_v1(file.file_id) if version == 1 else c.reconnect_v2(file.file_id, guid)
    found = reconnected(bench.tree([dialect], guid=client), file, context)
    stated = expect(found.query(FileInfo.NETWORK_OPEN)).buffer
    created, _, _, _, _, end, attributes = struct.unpack_from("<QQQQQQI", stated)
    message = found.message
    assert (message["end_of_file"], message["creation_time"]) == (end, created)
    assert message["attributes"] == attributes
    assert message["end_of_file"] == 10


# Sparse files

PIECE = 1 << 20
"""Bytes between two pieces of data, more than any allocation unit."""

PAGES = ("zero-data-pages",)


@pytest.fixture
def sparse(tree, path):
    """Return a sparse file with data at 0, PIECE and 2 PIECE, 64 KiB each, and its bytes' size."""
    file = tree.open(path)
    if (message := file.ioctl(Fsctl.SET_SPARSE)).status in NO_FSCTL:
        pytest.skip("the server has no sparse files")
    expect(message)
    for at in range(3):
        expect(file.write(noise(65536), at * PIECE))
    return file


def ranges(file, offset, length, **more):
    """Return the status of QUERY_ALLOCATED_RANGES and the ranges (MS-FSCC 2.3.47, 2.3.48)."""
    message = file.ioctl(Fsctl.QUERY_ALLOCATED_RANGES, struct.pack("<QQ", offset, length), **more)
    if message.status in NO_FSCTL:
        pytest.skip("the server has no FSCTL_QUERY_ALLOCATED_RANGES")
    return message.status, list(struct.iter_unpack("<QQ", message.buffer))


@pytest.mark.case("SMB-SPARSE-RANGES", section="MS-FSA 2.1.5.10.22", kills=("allocated-first-range",))
def test_the_allocated_ranges_hold_all_data(sparse):
    status, found = ranges(sparse, 0, 3 * PIECE)
    assert status == SmbStatus.SUCCESS
    assert all(length for _, length in found)
    ends = [offset + length for offset, length in found]
    assert all(end <= offset for end, (offset, _) in zip(ends, found[1:], strict=False)), "out of order"
    for at in range(3):
        inside = [offset <= at * PIECE and at * PIECE + 65536 <= offset + length for offset, length in found]
        assert any(inside), f"the data at {at * PIECE} are in none of the ranges {found}"


@pytest.mark.case("SMB-SPARSE-WITHIN", section="MS-FSA 2.1.5.10.22", kills=("allocated-outside",))
def test_the_allocated_ranges_are_within_what_was_asked_for(sparse):
    for offset, length in ((4096, 8192), (PIECE, 65536), (PIECE - 4096, 8192), (65536, PIECE)):
        _, found = ranges(sparse, offset, length)
        assert all(offset <= at and at + size <= offset + length for at, size in found), found


@pytest.mark.parametrize(
    ("offset", "end"),
    [
        case("SMB-ZERO-WHOLE", PIECE, PIECE + 65536, kills=("status-success-lost",)),
        case("SMB-ZERO-ODD", PIECE + 100, PIECE + 8200, kills=PAGES),
        case("SMB-ZERO-BYTE", PIECE + 4095, PIECE + 4096, kills=PAGES),
        case("SMB-ZERO-START", 0, 4097, kills=PAGES),
        case("SMB-ZERO-NOTHING", 5000, 5000, kills=("status-success-lost",)),
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.5.10.40")
def test_zeroed_data_are_zero_and_their_neighbours_stay(sparse, offset, end):
    message = sparse.ioctl(Fsctl.SET_ZERO_DATA, struct.pack("<QQ", offset, end))
    if message.status in NO_FSCTL:
        pytest.skip("the server has no FSCTL_SET_ZERO_DATA")
    expect(message)
    base = offset // PIECE * PIECE
    wanted = bytearray(noise(65536))
    wanted[offset - base : end - base] = bytes(end - offset)
    assert expect(sparse.read(65536, base)).buffer == bytes(wanted)
    assert expect(sparse.read(65536, 2 * PIECE)).buffer == noise(65536)
    assert struct.unpack_from("<QQ", expect(sparse.query(FileInfo.STANDARD)).buffer)[1] == 2 * PIECE + 65536


@pytest.mark.case("SMB-ZERO-ACCESS", section="MS-FSA 2.1.5.10.40", kills=("accepts-ioctl",))
def test_data_are_not_zeroed_without_write_access(tree, sparse, path):
    expect(sparse.close())
    reader = tree.open(path, access=Access.GENERIC_READ, disposition=Disposition.OPEN)
    message = reader.ioctl(Fsctl.SET_ZERO_DATA, struct.pack("<QQ", 0, 4096))
    expect(message, SmbStatus.ACCESS_DENIED)
    assert expect(reader.read(4096)).buffer == noise(65536)[:4096]


# Access and sizes

FLUSHED = ("flush-read-only",)
ATTRIBUTES = Access.READ_ATTRIBUTES | Access.WRITE_ATTRIBUTES


@pytest.mark.parametrize(
    "access",
    [
        case("SMB-FLUSH-READ", Access.GENERIC_READ, kills=FLUSHED),
        case("SMB-FLUSH-ATTRIBUTES", ATTRIBUTES, kills=FLUSHED),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.11")
def test_a_flush_of_a_file_needs_access_to_write(tree, written, access):
    opened = tree.open(written(), access=access, disposition=Disposition.OPEN)
    expect(opened.flush(), SmbStatus.ACCESS_DENIED)


@pytest.mark.parametrize(
    ("allocation", "size"),
    [
        case("SMB-ALLOCATION-ZERO", 0, 0, kills=("allocation-shrink-ignored",)),
        case("SMB-ALLOCATION-LARGE", 1 << 20, 70_000, kills=("status-success-lost",)),
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.5.15.1")
def test_an_allocation_below_the_end_of_the_file_cuts_it(tree, directory, allocation, size):
    file = tree.open(f"{directory}\\file")
    fill(file, noise(70_000))
    expect(file.set(FileInfo.ALLOCATION, struct.pack("<Q", allocation)))
    assert struct.unpack_from("<QQ", expect(file.query(FileInfo.STANDARD)).buffer)[1] == size


@pytest.mark.case("SMB-SIZE-EVERYWHERE", section="MS-FSCC 2.4.33", kills=("network-open-size-sticks",))
def test_every_class_states_the_size_after_each_change(tree, directory):
    file = tree.open(f"{directory}\\file")
    for change, size in ((lambda: file.write(bytes(100)), 100), (lambda: file.set_size(40), 40)):
        expect(change())
        standard = struct.unpack_from("<QQ", expect(file.query(FileInfo.STANDARD)).buffer)[1]
        network = struct.unpack_from("<QQQQQQ", expect(file.query(FileInfo.NETWORK_OPEN)).buffer)[5]
        every = struct.unpack_from("<QQ", expect(file.query(FileInfo.ALL)).buffer, 40)[1]
        assert (standard, network, every) == (size, size, size)


# Server-side copies


@pytest.mark.case("SMB-COPY-CHUNKS", section="MS-SMB2 3.3.5.15.6", kills=("copychunk-total-of-last",))
def test_each_of_several_chunks_is_copied_to_its_place(tree, path):
    source, target = tree.open(f"{path}-source"), tree.open(f"{path}-target")
    data = noise(30000)
    expect(source.write(data))
    each = ((0, 20000, 1000), (5000, 0, 4096), (29999, 25000, 1), (4097, 10001, 777))
    key = resume_key(source)
    message = expect(target.ioctl(Fsctl.SRV_COPYCHUNK, chunks(key, *each), max_output=12))
    counts = struct.unpack("<III", message.buffer)
    assert counts == (len(each), 0, sum(length for _, _, length in each)), f"the counts are {counts}"
    wanted = bytearray(25001)
    for start, at, length in each:
        wanted[at : at + length] = data[start : start + length]
    assert expect(target.read(25001)).buffer == bytes(wanted)
