"""Broken rules of the list of log subpages, and of the SCSI Ports page.

The rules, from the text (SPC-4), before any case:

- LOG SENSE, page 00h, subpage FFh: pages and subpages in ascending order, each of which is there.
- SCSI Ports: each port of the target, with its relative port identifier and with designators of target ports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn

KIND = "full"
LOG_SENSE, INQUIRY, SCSI_PORTS = 0x4D, 0x12, 0x88


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
