"""Leases that are broken by what another client does to a file that is open (MS-FSA 2.1.4.12).

Each operation checks for a break, not only an open or a write: byte-range locks, sizes of the allocation,
zeros, server-side copies. Also the header of a notification (MS-SMB2 3.3.4.6, 3.3.4.7).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

import pytest

from storagetest.suites.conformance.smb2.support import NO_FSCTL, READ, case, chunks, resume_key
from storagetest.wire.smb2.caching import granted, next_break, open_leased, send_create
from storagetest.wire.smb2.client import SmbFile
from storagetest.wire.smb2.codes import (
    Capability,
    Dialect,
    Disposition,
    FileInfo,
    Fsctl,
    Lease,
    Lock,
    Oplock,
    SmbStatus,
)
from storagetest.wire.smb2.harness import SmbHarness, expect
from storagetest.wire.smb2.message import SmbMessage

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-FSA 2.1.4.12", level="MUST")]

DATA = b"0123456789" * 10
R, RWH = Lease.READ, Lease.READ | Lease.WRITE | Lease.HANDLE
FORMS = ((1, Dialect.SMB_2_1), (2, Dialect.SMB_3_1_1))
"""The forms of the lease context, and a dialect for each."""


@pytest.fixture
def key() -> bytes:
    """The lease key of the case."""
    return os.urandom(16)


def leased(bench: SmbHarness, path: str, key: bytes, state: int, version: int, dialect: int) -> SmbFile:
    """Return a file of a client with a lease of ``state``; skip if the server grants another."""
    tree = bench.tree([dialect])
    if not tree.session.connection.settled.capabilities & Capability.LEASING:
        pytest.skip("the server has no leases in this dialect")
    file = open_leased(tree, path, key, state, version=version)
    grant = granted(file)
    if grant is None or grant.state != state:
        pytest.skip(f"the server does not grant {Lease(state)!r} but {grant and grant.state!r}")
    return file


def lock(file: SmbFile) -> SmbMessage:
    """Lock some bytes."""
    return file.lock((0, 5, Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY))


def allocate(file: SmbFile) -> SmbMessage:
    """Set an allocation below the end of the file, which cuts it."""
    return file.set(FileInfo.ALLOCATION, struct.pack("<Q", len(DATA) // 2))


def zero(file: SmbFile) -> SmbMessage:
    """Zero some bytes; skip if the server has no such control code."""
    message = file.ioctl(Fsctl.SET_ZERO_DATA, struct.pack("<QQ", 0, 5))
    if message.status in NO_FSCTL:
        pytest.skip("the server has no FSCTL_SET_ZERO_DATA (MS-FSA 2.1.5.10.40)")
    return message


def copy(file: SmbFile) -> SmbMessage:
    """Copy some bytes of the file over others of it."""
    return file.ioctl(Fsctl.SRV_COPYCHUNK, chunks(resume_key(file), (0, 50, 10)), max_output=12)


Change = Callable[[SmbFile], SmbMessage]
CHANGES: dict[str, tuple[Change, str, dict[str, object]]] = {
    "LOCK": (lock, "MS-FSA 2.1.5.8", {"kills": ("lease-break-lock-lost",)}),
    "ALLOCATION": (allocate, "MS-FSA 2.1.5.15.1", {"kills": ("lease-break-allocation-lost",)}),
    "ZERO": (zero, "MS-FSA 2.1.5.10.40", {"kills": ("lease-break-zero-lost",)}),
    "COPY": (copy, "MS-FSA 2.1.5.4", {"kills": ("lease-break-copy-lost",)}),
}
"""What breaks read caching: the operation, its section, and how its case is shown to find a fault."""


@pytest.mark.parametrize(
    ("version", "dialect", "change"),
    [
        case(f"SMB-BREAK-V{version}-{name}", version, dialect, change, section=section, **more)
        for name, (change, section, more) in CHANGES.items()
        for version, dialect in FORMS
    ],
)
def test_what_another_client_does_to_the_data_breaks_read_caching(
    bench: SmbHarness, path: str, key: bytes, version: int, dialect: int, change: Change
) -> None:
    """The holder reads from its cache until the break arrives; without one its data are old."""
    first = leased(bench, path, key, R, version, dialect)
    expect(first.write(DATA))
    second = bench.tree().open(path, disposition=Disposition.OPEN)
    expect(change(second))
    message = next_break(first.tree)
    states = (message["current_state"], message["new_state"], message["flags"])
    assert message["lease_key"] == key
    assert states == (R, Lease.NONE, 0), "READ is broken to NONE, without an acknowledgement"


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        case(
            f"SMB-BREAK-V{version}-HEADER",
            version,
            dialect,
            section="MS-SMB2 3.3.4.7",
            kills=("break-session-set", "break-tree-set"),
        )
        for version, dialect in FORMS
    ],
)
def test_a_notification_of_a_lease_is_of_no_session_and_no_tree(
    bench: SmbHarness, path: str, key: bytes, version: int, dialect: int
) -> None:
    """SessionId and TreeId are 0: a lease is that of a client, whose sessions come and go."""
    first = leased(bench, path, key, RWH, version, dialect)
    send_create(bench.tree(), path, access=READ, disposition=Disposition.OPEN)
    message = next_break(first.tree)
    assert (message["session_id"], message["tree_id"]) == (0, 0), "SessionId and TreeId of the notification"


@pytest.mark.case("SMB-OPBREAK-HEADER", section="MS-SMB2 3.3.4.6", kills=("break-tree-set",))
def test_a_notification_of_an_oplock_is_of_no_tree(bench: SmbHarness, path: str) -> None:
    """TreeId is 0."""
    first = bench.tree()
    if first.open(path, oplock=Oplock.BATCH).message["oplock"] != Oplock.BATCH:
        pytest.skip("the server grants no batch oplock")
    send_create(bench.tree(), path, access=READ, disposition=Disposition.OPEN)
    message = next_break(first)
    assert message.status == SmbStatus.SUCCESS
    assert message["tree_id"] == 0, f"TreeId is {message['tree_id']:#x}"
