"""Broken rules of the length of data: allocation lengths, and the initiator's expected length.

The rules, from the text:

- SPC-4 4.2.5.6: no more is transferred than the allocation length (MUST).
- RFC 7143 11.4.5.1: data that were not expected are an overflow, and its count is a residual (MUST).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace

from iscsi_neighbour_mutants import failed, passes
from iscsi_other_form_mutants import When, cdb_changed
from iscsi_proxy_connection import Out, ProxyConnection, mutant
from iscsi_rules import ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.scsi.codes import Asc

INQUIRY, SENSE, MODE_6, MODE_10, LOG, PR_IN = 0x12, 0x03, 0x1A, 0x5A, 0x4D, 0x5E
CAPACITY, LUNS, MAINTENANCE_IN = 0x9E, 0xA0, 0xA3


def allocation(name: str, opcode: int, first: int, last: int, when: When, kind: str = "full") -> None:
    """A mutant that takes the largest allocation length for each other one."""
    cdb_changed(
        f"allocation-{name} | SPC-4 allocation length | data are cut to what is expected alone, of opcode {opcode:02x}h",
        lambda block: block[0] == opcode and when(block),
        lambda block: block[:first] + b"\xff" * (last - first + 1) + block[last + 1 :],
        kind=kind,
    )


def action(number: int) -> When:
    return lambda block: block[1] & 0x1F == number


allocation("inquiry", INQUIRY, 3, 4, lambda block: not block[1] & 1)
for _page in (0x00, 0x80, 0x83, 0xB0):
    allocation(
        f"vpd-{_page:02x}", INQUIRY, 3, 4, lambda block, page=_page: block[1] & 1 == 1 and block[2] == page
    )  # type: ignore[misc]
allocation("sense-fixed", SENSE, 4, 4, lambda block: not block[1] & 1)
allocation("sense-desc", SENSE, 4, 4, lambda block: bool(block[1] & 1))
allocation("mode-6", MODE_6, 4, 4, lambda block: not block[1] & 8)
allocation("mode-6-dbd", MODE_6, 4, 4, lambda block: bool(block[1] & 8))
allocation("mode-10", MODE_10, 7, 8, lambda block: not block[1] & 8)
allocation("mode-10-dbd", MODE_10, 7, 8, lambda block: bool(block[1] & 8))
allocation("log", LOG, 7, 8, lambda _block: True)
allocation("capacity", CAPACITY, 10, 13, action(0x10))
allocation("luns", LUNS, 6, 9, lambda _block: True)
for _name, _action in (("keys", 0), ("held", 1), ("can", 2), ("full", 3)):
    allocation(f"prin-{_name}", PR_IN, 7, 8, action(_action))
allocation("ops", MAINTENANCE_IN, 6, 9, lambda block: block[1] & 0x1F == 0x0C and not block[2] & 7)
allocation("ops-one", MAINTENANCE_IN, 6, 9, lambda block: block[1] & 0x1F == 0x0C and block[2] & 7 == 1)
allocation("tmf", MAINTENANCE_IN, 6, 9, action(0x0D))
allocation("groups", MAINTENANCE_IN, 6, 9, action(0x0A), kind="thin")


@mutant(
    "allocation-less-padded | RFC 7143 11.4.5.1 | an overflow of less than a block is no overflow",
    kind="full",
)
def small_overflow(talk: ProxyConnection, pdu: Pdu) -> Out:
    # READ and WRITE have overflows in blocks; what a list has over the expected length is less.
    return (
        replace(pdu, overflow=False, residual=0)
        if ends(pdu) and 0 < pdu.residual < 256 and pdu.overflow
        else pdu
    )  # type: ignore[attr-defined,call-arg]


@mutant(
    "short-data-silent | RFC 7143 11.4.5.1 | a command that has part of its data is GOOD, and states no residual",
    kind="full",
)
def short_data(talk: ProxyConnection, pdu: Pdu) -> Out:
    command = talk.commands.get(pdu.itt)
    part = command is not None and command.expected_length > 0 and not command.read
    return good(pdu) if part and failed(pdu, Asc.INVALID_FIELD_IN_CDB) else pdu


cdb_changed("mode-subpage-ignored | SPC-4 MODE SENSE | SUBPAGE CODE is not read", lambda block: block[0] in {MODE_6, MODE_10} and block[3] == 0x3E,
            lambda block: block[:3] + bytes(1) + block[4:])  # fmt: skip
cdb_changed("mode-subpages-short | SPC-4 MODE SENSE | all subpages are those of the Caching page", lambda block: block[0] in {MODE_6, MODE_10} and block[2:4] == b"\x3f\xff",
            lambda block: block[:2] + b"\x08\0" + block[4:])  # fmt: skip
passes("format-any-protection | SBC-3 FORMAT UNIT | FMTPINFO of a unit without protection is not read", lambda block: block[0] == 0x04,
       Asc.INVALID_FIELD_IN_CDB, kind="full")  # fmt: skip
