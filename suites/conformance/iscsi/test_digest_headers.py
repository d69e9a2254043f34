"""The header digest covers the additional header segments (RFC 7143 11.2.2, 11.2.3, 13.1)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.test_digest import with_digests
from storagetest.wire.crc import crc32c
from storagetest.wire.iscsi.encoding import AHS_BIDIRECTIONAL, Ahs
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.outcomes import ProbeOutcome
from storagetest.wire.iscsi.pdu import ScsiCommand, ScsiResponse
from storagetest.wire.scsi.cdb import TEST_UNIT_READY, cdb

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 11.2.3, 13.1", level="MUST", builds_on=("ISC-DIGEST-03",)),
]

READY = cdb(TEST_UNIT_READY).ljust(16, b"\0")
EXTENDED = 1
"""AHSType of a CDB of more than 16 bytes (11.2.2.3)."""
LONG = bytes((0x7F, 0, 0, 0, 0, 0, 0, 0x18, 0x07, 0xFE)) + bytes(6)
"""The first 16 of 32 bytes of a CDB of variable length, of a service action that is reserved (SBC-3)."""

HEADERS = {
    "CDB": (LONG, (Ahs(EXTENDED, b"\0" + bytes(16)),)),
    "LENGTH": (READY, (Ahs(AHS_BIDIRECTIONAL, b"\0" + bytes(4)),)),
    "TWO": (LONG, (Ahs(EXTENDED, b"\0" + bytes(16)), Ahs(AHS_BIDIRECTIONAL, b"\0" + bytes(4)))),
}
"""CDBs and additional headers of commands that no unit executes, or that have no effect."""


def answered(session: Initiator, form: str, *, whole: bool = True) -> tuple[bool, ProbeOutcome]:
    """Send the command; return whether it has a SCSI Response, and what has come.

    Without ``whole``, the header digest is that of the basic header segment alone.
    """
    block, headers = HEADERS[form]
    sent = session.assign_numbers(ScsiCommand(lun=session.lun, cdb=block, ahs=headers))
    parts = sent.parts()
    xor = 0 if whole else crc32c(parts.bhs + parts.ahs) ^ crc32c(parts.bhs)
    session.send(sent, number=False, header_digest_xor=xor)
    after = session.probe_alive()
    return any(isinstance(pdu, ScsiResponse) and pdu.itt == sent.itt for pdu in after.pdus), after


def forms(claim: str) -> pytest.MarkDecorator:
    """Return the parameters of a claim: each form."""
    marks = [pytest.param(form, marks=pytest.mark.case(f"ISC-DIGEST-AHS-{claim}{form}")) for form in HEADERS]
    return pytest.mark.parametrize("form", marks)


def with_header_digest(connections, form: str) -> Initiator:
    """Log in with header digests; skip if the target does not answer the command without them, either."""
    taken, after = answered(connections.login("b"), form)
    if not taken:
        pytest.skip(f"a command with these additional headers has no SCSI Response without digests: {after}")
    return with_digests(connections, header="yes", data="yes")


@forms("")
@pytest.mark.case(kills=("digest-without-ahs",))
def test_a_command_with_additional_headers_is_answered_with_a_header_digest_too(connections, form):
    taken, after = answered(with_header_digest(connections, form), form)
    assert taken, f"with a right digest of the header and its AHS there is no SCSI Response: {after}"


@forms("WRONG-")
@pytest.mark.case(section="RFC 7143 7.8, 11.2.3", kills=("digest-of-ahs-not-checked",))
def test_a_digest_of_the_first_48_bytes_alone_is_wrong(connections, form, observe):
    """The target discards the PDU or ends the connection; in no case does it answer it."""
    session = with_header_digest(connections, form)
    taken, after = answered(session, form, whole=False)
    observe(str(after))
    assert not taken, f"with a digest of the basic header segment alone the command is answered: {after}"
