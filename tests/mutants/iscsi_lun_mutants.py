"""Broken rules of the addressing methods of a LUN.

The rules, from the text:

- SAM-5 4.7: a LUN that is not in the list of logical units is incorrect: nothing is executed there (MUST).
- SPC-4, well known logical units: they have the commands of their kind, and none of a block device (MUST).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, on_request

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import ScsiCommand, TaskRequest

INQUIRY = 0x12


def to_low_byte(row: str, kinds: type[Pdu] | tuple[type[Pdu], ...], when: Callable[[int, Pdu], bool]) -> None:
    """A mutant that takes the second byte of a LUN for all of it; ``when`` has its first byte and the PDU."""

    @on_request(row, kind="full")
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, kinds) or not when(pdu.lun >> 56, pdu):  # type: ignore[attr-defined]
            return pdu
        return replace(pdu, lun=pdu.lun & 0xFF << 48)  # type: ignore[attr-defined]


def _scsi(pdu: Pdu) -> bool:
    return isinstance(pdu, ScsiCommand) and pdu.cdb[0] != INQUIRY


to_low_byte("lun-bus-low-byte | SAM-5 4.7 | the bus of peripheral device addressing is not read", ScsiCommand,
            lambda first, pdu: 0 < first < 0x40 and _scsi(pdu))  # fmt: skip
to_low_byte("lun-flat-low-byte | SAM-5 4.7 | of a flat space LUN only the second byte is read", ScsiCommand,
            lambda first, pdu: 0x40 < first < 0x80 and _scsi(pdu))  # fmt: skip
to_low_byte("lun-logical-low-byte | SAM-5 4.7 | logical unit addressing is taken for flat space addressing", ScsiCommand,
            lambda first, pdu: 0x80 <= first < 0xC0 and _scsi(pdu))  # fmt: skip
to_low_byte("lun-extended-low-byte | SAM-5 4.7 | extended addressing is taken for flat space addressing", ScsiCommand,
            lambda first, pdu: first > 0xC1 and _scsi(pdu))  # fmt: skip
to_low_byte("lun-form-inquiry | SAM-5 4.7, SPC-4 INQUIRY | INQUIRY reads the second byte of a LUN alone", ScsiCommand,
            lambda first, pdu: first not in (0, 0xC1) and not _scsi(pdu))  # fmt: skip
to_low_byte("lun-form-reset | RFC 7143 11.6.1 | LOGICAL UNIT RESET reads the second byte of a LUN alone", TaskRequest,
            lambda first, _pdu: first != 0)  # fmt: skip


@on_request("well-known-executes | SPC-4 well known logical units | the REPORT LUNS logical unit executes commands of LUN 0", kind="full")  # fmt: skip
def well_known(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, lun=0) if isinstance(pdu, ScsiCommand) and pdu.lun == 0xC101 << 48 else pdu
