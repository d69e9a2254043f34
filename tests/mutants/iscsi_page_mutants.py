"""Broken rules of the list of log subpages, of the SCSI Ports page, and of SCOPE and TYPE of reservations.

The rules, from the text (SPC-4), before any case:

- LOG SENSE, page 00h, subpage FFh: pages and subpages in ascending order, each of which is there.
- READ FULL STATUS: the descriptor of a holder has SCOPE and TYPE of the reservation. RELEASE names them.
- SCSI Ports: each port of the target, with its relative port identifier and with designators of target ports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiCommand

KIND = "full"
LOG_SENSE, INQUIRY, SCSI_PORTS, RESERVE_IN, RESERVE_OUT = 0x4D, 0x12, 0x88, 0x5E, 0x5F
FULL_STATUS, RELEASE = 3, 2


def _log(row: str, change: Callable[[bytes], bytes]) -> None:
    """A mutant that changes the list of pages and subpages."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        ours = isinstance(pdu, DataIn) and block[0] == LOG_SENSE and block[2:4] == b"\x40\xff"
        return replace(pdu, data=change(pdu.data)) if ours else pdu


_log(
    "log-subpages-order | SPC-4 LOG SENSE | the list of pages and subpages is in descending order",
    lambda data: data[:4] + data[8:] + data[4:8],
)
_log(
    "log-subpages-lack | SPC-4 LOG SENSE | the list of subpages has another page instead of 0Ch",
    lambda data: data[:8] + b"\x0d" + data[9:],
)
_log(
    "log-subpage-code | SPC-4 LOG SENSE | SPF of a subpage is 0",
    lambda data: bytes((data[0] & 0x3F,)) + data[1:],
)


def _ports(row: str, change: Callable[[bytes], bytes]) -> None:
    """A mutant that changes page 88h."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        ours = isinstance(pdu, DataIn) and block[0] == INQUIRY and block[1] & 1 and block[2] == SCSI_PORTS
        return replace(pdu, data=change(pdu.data)) if ours else pdu  # type: ignore[attr-defined,call-arg]


_ports(
    "ports-page-other | SPC-4 SCSI Ports | the port has another relative identifier than in page 83h",
    lambda data: data[:7] + bytes((data[7] + 1,)) + data[8:],
)
_ports(
    "ports-page-association | SPC-4 SCSI Ports | the designator of the port is that of a logical unit",
    lambda data: data[:17] + bytes((data[17] & ~0x30,)) + data[18:],
)


# Reservations


@mutant("full-status-no-type | SPC-4 READ FULL STATUS | SCOPE and TYPE of the holder are 0", kind=KIND)
def full_status_no_type(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != RESERVE_IN or block[1] & 0x1F != FULL_STATUS:
        return pdu
    data, at = bytearray(pdu.data), 8
    while at + 24 <= len(data):
        data[at + 13] = 0
        at += 24 + int.from_bytes(data[at + 20 : at + 24], "big")
    return replace(pdu, data=bytes(data))


@on_request("release-any-scope | SPC-4 RELEASE | SCOPE is ignored", kind=KIND)
def release_any_scope(talk: ProxyConnection, pdu: Pdu) -> Out:
    ours = isinstance(pdu, ScsiCommand) and pdu.cdb[0] == RESERVE_OUT and pdu.cdb[1] & 0x1F == RELEASE
    return replace(pdu, cdb=pdu.cdb[:2] + bytes((pdu.cdb[2] & 0x0F,)) + pdu.cdb[3:]) if ours else pdu  # type: ignore[attr-defined,call-arg]
