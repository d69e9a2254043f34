"""Reserved fields of what a controller sends: the place that looks at every PDU and every completion.

A reserved field is 0 (Base 1.4.1.6). What is not 0 is a fault that no command fails of, so it is noted, not
raised: :attr:`.queue.Queue.faults`. The sentences name no values, so that one fault has one sentence.
"""

from __future__ import annotations

from collections.abc import Iterator

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Io
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import FIELDS, KINDS, DecodedPdu, Flag

NO_RESULT = {
    True: {Admin.GET_LOG_PAGE, Admin.IDENTIFY, Admin.KEEP_ALIVE},
    False: {*Io} - {Io.COPY},
}
"""Commands of the admin queue (True) and of I/O queues whose completion uses neither dword 0 nor dword 1."""


def pdu_faults(received: DecodedPdu) -> Iterator[str]:
    """Yield a sentence for each reserved field of a PDU that is not 0 (NVMe/TCP 3.6.2)."""
    kind, raw = KINDS[received.type], received.raw
    where = f"{kind.name} (NVMe/TCP {kind.section})"
    if raw[1] & ~int(kind.flags):  # of an IntFlag, ~ has no bits that it does not define
        yield f"{where}: reserved bits of FLAGS are set"
    if raw[3] and Flag.DDGSTF not in kind.flags:
        yield f"{where}: PDO, which is reserved, is not 0"
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
