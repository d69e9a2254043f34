"""Reserved fields of what a controller sends: the place that looks at every PDU and every completion.

A reserved field is 0 (Base 1.4.1.6). What is not 0 is a fault that no command fails of, so it is noted, not
raised: :attr:`.queue.Queue.faults`. The sentences name no values, so that one fault has one sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Feature, Io
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import FIELDS, KINDS, DecodedPdu, Flag

NO_RESULT = {
    True: {Admin.GET_LOG_PAGE, Admin.IDENTIFY, Admin.KEEP_ALIVE},
    False: {*Io} - {Io.COPY},
}
"""Commands of the admin queue (True) and of I/O queues whose completion uses neither dword 0 nor dword 1."""

RESULT_BITS: Mapping[int, int] = {
    Admin.ABORT: 0x1,  # 5.2.1.2
    Admin.ASYNCHRONOUS_EVENT_REQUEST: 0x00FF_FF07,  # 5.2.2.1
}
"""Bits of dword 0 that the completion of an admin command defines."""
FEATURE_BITS: Mapping[int, int] = {
    Feature.ARBITRATION: 0xFFFF_FF07,  # 5.2.26.1.1
    Feature.POWER_MANAGEMENT: 0xFF,  # 5.2.26.1.2
    Feature.TEMPERATURE_THRESHOLD: 0x01FF_FFFF,  # 5.2.26.1.3
    Feature.VOLATILE_WRITE_CACHE: 0x1,  # 5.2.26.1.4
}
"""Bits of dword 0 that Get Features defines for the value of a feature."""
CAPABILITY_BITS = 0x7
"""Bits of dword 0 that Get Features defines for the capabilities (5.2.11)."""
CAPABILITIES = 3
"""SEL of the capabilities (5.2.11)."""


def _reserved_result(command: Command) -> int:
    """Return the bits of dword 0 that are reserved in a successful completion on the admin queue."""
    every = 0xFFFF_FFFF
    if command.opcode != Admin.GET_FEATURES:
        defined = RESULT_BITS.get(command.opcode, every)
    elif command.cdw10 >> 8 & 7 == CAPABILITIES:
        defined = CAPABILITY_BITS
    else:
        defined = FEATURE_BITS.get(command.cdw10 & 0xFF, every)
    return every & ~defined


def pdu_faults(received: DecodedPdu) -> Iterator[str]:
    """Yield a sentence for each reserved field of a PDU that is not 0 (NVMe/TCP 3.6.2)."""
    kind, raw = KINDS[received.type], received.raw
    where = f"{kind.name} (NVMe/TCP {kind.section})"
    if raw[1] & ~int(kind.flags):  # of an IntFlag, ~ has no bits that it does not define
        yield f"{where}: reserved bits of FLAGS are set"
    if raw[3] and Flag.DDGSTF not in kind.flags:
        yield f"{where}: PDO, which is reserved, is not 0"
    if any(received.padding):
        yield f"{where}: PAD, whose bytes are reserved (3.3), is not 0"
    for name, field in FIELDS[received.type].items():
        if name.startswith("RSVD") and any(raw[field.offset : field.offset + field.size]):
            yield f"{where}: reserved bytes from {field.offset} are not 0"
    if received.type.name == "ICRESP" and raw[11] & 0xFC:
        yield f"{where}: reserved bits of DGST are set"


def completion_faults(cqe: Cqe, command: Command | None, *, qid: int, sqsize: int | None) -> Iterator[str]:
    """Yield a sentence for each field of a completion that its queue does not allow (Base 4.2).

    ``command`` is None if it is unknown; ``sqsize`` (zero's based) is None if SQHD is not used. SQID has
    cases of its own, because controllers are known that set it in each completion of an I/O queue.
    """
    if cqe.phase:
        yield "a completion has the phase tag set, which is reserved over fabrics (Base 4.2.2)"
    if cqe.crd:
        yield "CRD of a completion is not 0; the host has not enabled it (Base 4.2.3)"
    if sqsize is not None and cqe.sqhd > sqsize:
        yield "SQHD of a completion is beyond the end of its queue (Base 4.2.1)"
    if command is None or not cqe.ok:
        return
    fabrics = command.opcode == FABRICS
    if not fabrics and command.opcode in NO_RESULT[qid == 0] and cqe.result:
        yield f"dword 0 or 1 of a completion of opcode {command.opcode:02x}h, which has no result, is not 0"
    elif cqe.result >> 32 and not (
        fabrics and command.nsid & 0xFF == Fctype.PROPERTY_GET and command.cdw10 & 7
    ):
        yield "dword 1 of a completion, which is reserved, is not 0 (Base 4.2.1)"
    elif not fabrics and qid == 0 and cqe.dw0 & _reserved_result(command):
        yield f"dword 0 of a completion of opcode {command.opcode:02x}h has reserved bits set (Base 1.4.1.6)"
