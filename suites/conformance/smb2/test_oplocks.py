"""Oplocks: levels, breaks by a second client, acknowledgements (MS-SMB2 3.3.4.6, 3.3.5.22.1)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.smb2.support import READ, case
from storagetest.wire.smb2.caching import has_break, is_held, next_break, send_create
from storagetest.wire.smb2.codes import Disposition, Oplock, SmbStatus
from storagetest.wire.smb2.harness import expect

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.9", level="MUST")]

NONE, II, EXCLUSIVE, BATCH = Oplock.NONE, Oplock.LEVEL_II, Oplock.EXCLUSIVE, Oplock.BATCH


def opened(tree, path, level):
    """Open a file with an oplock of ``level``; skip if the server grants another."""
    file = tree.open(path, oplock=level)
    if file.message["oplock"] != level:
        pytest.skip(f"the server does not grant {level!r} but {Oplock(file.message['oplock'])!r}")
    return file


@pytest.mark.parametrize(
    "level",
    [
        case("SMB-OPLOCK-NONE", NONE, kills=("oplock-level-other",)),
        case("SMB-OPLOCK-II", II, kills=("oplock-level-other",)),
        case("SMB-OPLOCK-EXCLUSIVE", EXCLUSIVE, kills=("oplock-level-other",)),
    ],
)
def test_no_higher_level_than_requested_is_granted(tree, path, level):
    assert tree.open(path, oplock=level).message["oplock"] <= level


@pytest.mark.parametrize(
    "level",
    [
        case("SMB-OPLOCK-GRANT-II", II, kills=("oplock-level-lost",)),
        case("SMB-OPLOCK-GRANT-EXCLUSIVE", EXCLUSIVE, kills=("oplock-level-lost", "oplock-level-other")),
        case("SMB-OPLOCK-GRANT-BATCH", BATCH, kills=("oplock-level-lost",)),
    ],
)
@pytest.mark.case(level="SHOULD")
def test_the_only_open_gets_the_level_that_it_requests(tree, path, level):
    assert tree.open(path, oplock=level).message["oplock"] == level


@pytest.mark.case("SMB-OPLOCK-SECOND", section="MS-FSA 2.1.5.18", kills=("oplock-level-other",))
def test_a_file_that_is_open_gets_no_exclusive_oplock(tree, other, path):
    tree.open(path)
    assert other.open(path, oplock=BATCH).message["oplock"] not in (EXCLUSIVE, BATCH)


BREAKS = pytest.mark.case(section="MS-SMB2 3.3.4.6")


@BREAKS
@pytest.mark.parametrize(
    "level",
    [
        case(
            "SMB-OPBREAK-BATCH",
            BATCH,
            kills=("oplock-break-to-exclusive", "oplock-break-lost", "oplock-break-file-other"),
        ),
        case("SMB-OPBREAK-EXCLUSIVE", EXCLUSIVE, kills=("oplock-break-lost", "oplock-break-file-other")),
    ],
)
def test_an_open_of_a_second_client_breaks_the_oplock(tree, other, path, level):
    file = opened(tree, path, level)
    send_create(other, path, access=READ, disposition=Disposition.OPEN)
    message = next_break(tree)
    assert message["file_id"] == file.file_id
    assert message["oplock"] in (NONE, II)


@BREAKS
@pytest.mark.parametrize(
    "level",
    [
        case("SMB-OPBREAK-LEVEL-BATCH", BATCH, kills=("oplock-break-level-other",)),
        case("SMB-OPBREAK-LEVEL-EXCLUSIVE", EXCLUSIVE, kills=("oplock-break-level-other",)),
    ],
)
def test_the_new_level_is_lower(tree, other, path, level):
    opened(tree, path, level)
    send_create(other, path, access=READ, disposition=Disposition.OPEN)
    assert next_break(tree)["oplock"] in (NONE, II)


@BREAKS
@pytest.mark.case("SMB-OPBREAK-HELD", kills=("open-not-held",))
def test_the_second_open_waits_for_the_acknowledgement(tree, other, path):
    file = opened(tree, path, BATCH)
    mid = send_create(other, path, access=READ, disposition=Disposition.OPEN)
    message = next_break(tree)
    assert is_held(other, mid), "the open ended before the acknowledgement"
    expect(file.acknowledge_oplock(message["oplock"]))
    expect(other.receive(mid))


ACK = pytest.mark.case(section="MS-SMB2 3.3.5.22.1")


@ACK
@pytest.mark.parametrize(
    "level",
    [
        case("SMB-OPACK-II", II, kills=("oplock-ack-level-other",)),
        case("SMB-OPACK-NONE", NONE, kills=("oplock-ack-level-other",)),
    ],
)
def test_an_acknowledgement_is_answered_with_its_level(tree, other, path, level):
    file = opened(tree, path, BATCH)
    mid = send_create(other, path, access=READ, disposition=Disposition.OPEN)
    next_break(tree)
    message = expect(file.acknowledge_oplock(level))
    assert (message["oplock"], message["file_id"]) == (level, file.file_id)
    expect(other.receive(mid))


@ACK
@pytest.mark.case("SMB-OPACK-LEASE", kills=("accepts-oplock-break", "status-oplock-break"))
def test_an_acknowledgement_of_the_level_of_leases_is_an_invalid_parameter(tree, other, path):
    file = opened(tree, path, BATCH)
    send_create(other, path, access=READ, disposition=Disposition.OPEN)
    next_break(tree)
    expect(file.acknowledge_oplock(Oplock.LEASE), SmbStatus.INVALID_PARAMETER)


@ACK
@pytest.mark.case("SMB-OPACK-HIGHER", kills=("accepts-oplock-break", "status-oplock-break"))
def test_an_acknowledgement_of_a_higher_level_is_refused(tree, other, path):
    file = opened(tree, path, EXCLUSIVE)
    send_create(other, path, access=READ, disposition=Disposition.OPEN)
    next_break(tree)
    expect(
        file.acknowledge_oplock(BATCH),
        SmbStatus.INVALID_PARAMETER,
        SmbStatus.INVALID_OPLOCK_PROTOCOL,
        SmbStatus.INVALID_DEVICE_STATE,
    )


@ACK
@pytest.mark.case("SMB-OPACK-NO-BREAK", kills=("accepts-oplock-break", "status-oplock-break"))
def test_an_acknowledgement_without_a_break_is_refused(tree, path):
    expect(
        opened(tree, path, BATCH).acknowledge_oplock(II),
        SmbStatus.INVALID_OPLOCK_PROTOCOL,
        SmbStatus.INVALID_DEVICE_STATE,
    )


@ACK
@pytest.mark.case("SMB-OPACK-CLOSED", kills=("accepts-oplock-break", "status-oplock-break"))
def test_an_acknowledgement_of_a_closed_file_is_refused(tree, path):
    file = opened(tree, path, BATCH)
    expect(file.close())
    expect(file.acknowledge_oplock(II), SmbStatus.FILE_CLOSED)


@BREAKS
@pytest.mark.case("SMB-OPBREAK-CLOSE", kills=("oplock-break-lost",))
def test_a_close_ends_the_break(tree, other, path):
    file = opened(tree, path, BATCH)
    mid = send_create(other, path, access=READ, disposition=Disposition.OPEN)
    next_break(tree)
    expect(file.close())
    expect(other.receive(mid))


@pytest.mark.case(
    "SMB-OPBREAK-WRITE", section="MS-FSA 2.1.5.4", kills=("oplock-break-lost", "oplock-break-level-other")
)
def test_a_write_of_another_client_breaks_level_ii_to_none(tree, other, path):
    opened(tree, path, II)
    expect(other.open(path).write(b"changed"))
    assert next_break(tree)["oplock"] == NONE


@pytest.mark.case("SMB-OPBREAK-STAT", section="MS-FSA 2.1.5.1.2", kills=("stat-open-reads",))
def test_an_open_for_attributes_breaks_nothing(tree, other, path):
    opened(tree, path, BATCH)
    other.open(path, access=0x80 | 0x100000, disposition=Disposition.OPEN)  # READ_ATTRIBUTES, SYNCHRONIZE
    assert not has_break(tree)


@pytest.mark.case("SMB-OPBREAK-II", section="MS-FSA 2.1.5.18", kills=("status-success-lost",), level="SHOULD")
def test_level_ii_is_shared(tree, other, path):
    opened(tree, path, II)
    assert other.open(path, oplock=II).message["oplock"] == II
    assert not has_break(tree)
