"""Broken rules of what an event leaves of a persistent reservation, and of fields over one byte."""

# ruff: noqa: E501  # a mutant is a row of a table

from collections.abc import Callable
from dataclasses import replace

from iscsi_each_form_mutants import KIND
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import check, ends

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiCommand
from storagetest.wire.scsi.codes import Asc, SenseKey

RESERVE_OUT, RESERVE_IN = 0x5F, 0x5E
READ_RESERVATION = 1
RESERVE, REGISTERS = 1, (0, 6)


def _done(talk: ProxyConnection, pdu: Pdu) -> int | None:
    """Return the service action of a PERSISTENT RESERVE OUT that ends in GOOD here; None: no such end."""
    cdb = talk.cdb(pdu)
    good = ends(pdu) and not pdu.status  # type: ignore[attr-defined]
    return cdb[1] & 0x1F if good and cdb[0] == RESERVE_OUT else None


def _generation(row: str, by: int, *actions: int) -> None:
    """A mutant that adds ``by`` to PRGENERATION for each command with one of the service actions."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if _done(talk, pdu) in actions:
            talk.shared["more"] = talk.shared.get("more", 0) + by
        more = talk.shared.get("more", 0)
        if not more or not isinstance(pdu, DataIn) or talk.cdb(pdu)[0] != RESERVE_IN or len(pdu.data) < 8:
            return pdu
        if talk.cdb(pdu)[1] & 0x1F == 2:  # REPORT CAPABILITIES has none
            return pdu
        generation = (int.from_bytes(pdu.data[:4], "big") + more) % (1 << 32)
        return replace(pdu, data=generation.to_bytes(4, "big") + pdu.data[4:])


_ROW = "SPC-4 PRGENERATION"
_generation(f"generation-register | {_ROW} | REGISTER is not counted", -1, 0)
_generation(f"generation-reserve | {_ROW} | RESERVE is counted", 1, 1)
_generation(f"generation-clear | {_ROW} | CLEAR is not counted", -1, 3)
_generation(f"generation-preempt | {_ROW} | PREEMPT is not counted", -1, 4, 5)
_generation(f"generation-ignore | {_ROW} | REGISTER AND IGNORE EXISTING KEY is not counted", -1, 6)


def _stale(row: str, at: slice, *actions: int) -> None:
    """A mutant whose READ RESERVATION has a field of before the last command with one of the actions."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if (action := _done(talk, pdu)) is not None:
            talk.shared["stale"] = action in actions
        cdb = talk.cdb(pdu)
        if not isinstance(pdu, DataIn) or cdb[0] != RESERVE_IN or cdb[1] & 0x1F != READ_RESERVATION:
            return pdu
        if len(pdu.data) < 24:
            return pdu
        if not talk.shared.get("stale"):
            talk.shared["field"] = pdu.data[at]
        old = talk.shared.get("field", pdu.data[at])
        return replace(pdu, data=pdu.data[: at.start] + old + pdu.data[at.stop :])


_stale(
    "reservation-key-before | SPC-4 REGISTER | the reservation has the key that its holder had before",
    slice(8, 16),
    0,
    6,
)
_stale(
    "reservation-type-before | SPC-4 PREEMPT | the reservation has the type that it had before",
    slice(21, 22),
    4,
    5,
)


# Fields of more than one byte, of which an implementation keeps the last


def _narrow(row: str, opcodes: dict[int, slice], keeps: int) -> None:
    """A mutant that clears the higher bytes of a field of the CDB, if its last ``keeps`` bytes are not zero."""

    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, ScsiCommand) or (at := opcodes.get(pdu.cdb[0])) is None:
            return pdu
        value = pdu.cdb[at]
        if not any(value[:-keeps]) or not any(value[-keeps:]):
            return pdu
        value = bytes(len(value) - keeps) + value[-keeps:]
        return replace(pdu, cdb=pdu.cdb[: at.start] + value + pdu.cdb[at.stop :])


_narrow(
    "inquiry-allocation-byte | SPC-4 INQUIRY, allocation length | its high byte is ignored",
    {0x12: slice(3, 5)},
    1,
)
_narrow(
    "allocation-two-bytes | SPC-4 allocation length | of four bytes the first two are ignored",
    {0xA0: slice(6, 10), 0x9E: slice(10, 14), 0xA3: slice(6, 10)},
    2,
)
_narrow(
    "allocation-one-byte | SPC-4 allocation length | of two bytes the first is ignored",
    {0x5A: slice(7, 9), 0x5E: slice(7, 9)},
    1,
)
_narrow(
    "blocks-two-bytes | SBC-3 READ, WRITE | of four bytes of a TRANSFER LENGTH the first two are ignored",
    {0xA8: slice(6, 10), 0xAA: slice(6, 10), 0x88: slice(10, 14), 0x8A: slice(10, 14)},
    2,
)
_narrow(
    "blocks-one-byte | SBC-3 READ, WRITE | of two bytes of a TRANSFER LENGTH the first is ignored",
    {0x28: slice(7, 9), 0x2A: slice(7, 9)},
    1,
)
_narrow(
    "same-two-bytes | SBC-3 WRITE SAME | of four bytes of the NUMBER OF LOGICAL BLOCKS the first two are ignored",
    {0x93: slice(10, 14)},
    2,
)


# Residuals and digests of larger transfers


@mutant("overflow-large | RFC 7143 11.4.5.1 | an overflow of 8 KiB or more has a residual of zero")
def overflow_large(talk: ProxyConnection, pdu: Pdu) -> Out:
    large = ends(pdu) and pdu.overflow and pdu.residual >= 8192  # type: ignore[attr-defined]
    return replace(pdu, residual=0) if large else pdu  # type: ignore[call-arg]


@mutant("underflow-large | RFC 7143 11.4.5.1 | an underflow of 8 KiB or more has a residual of zero")
def underflow_large(talk: ProxyConnection, pdu: Pdu) -> Out:
    large = ends(pdu) and pdu.underflow and pdu.residual >= 8192  # type: ignore[attr-defined]
    return replace(pdu, residual=0) if large else pdu  # type: ignore[call-arg]


def _narrow_residual(row: str, mask: int) -> None:
    """A mutant that keeps the low bytes of a residual only."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        wide = ends(pdu) and pdu.residual > mask  # type: ignore[attr-defined]
        return replace(pdu, residual=pdu.residual & mask) if wide else pdu  # type: ignore[call-arg,attr-defined]


_narrow_residual("residual-two-bytes | RFC 7143 11.4.5.1 | a residual has two bytes", 0xFFFF)
_narrow_residual("residual-three-bytes | RFC 7143 11.4.5.1 | a residual has three bytes", 0xFFFFFF)


def _damaged(row: str, damages: Callable[[DataIn], bool]) -> None:
    """A mutant that sends Data-In with a wrong data digest."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, DataIn) or not talk.digests[1] or not pdu.data or not damages(pdu):
            return pdu
        raw = talk.wire(pdu)
        return raw[:-1] + bytes((raw[-1] ^ 1,))


_damaged(
    "digest-of-fifth-data-in | RFC 7143 11.2.3 | the data digest is wrong from the fifth Data-In of a command on",
    lambda pdu: pdu.data_sn >= 4,
)
_damaged(
    "digest-of-last-data-in | RFC 7143 11.2.3 | the data digest of the last of several Data-In is wrong",
    lambda pdu: pdu.final and pdu.data_sn > 7,
)


@on_request("protect-of-write | SBC-3 protection information | WRPROTECT and VRPROTECT are ignored")
def protect_of_write(talk: ProxyConnection, pdu: Pdu) -> Out:
    writes = {0x2A, 0xAA, 0x8A, 0x2E, 0x8E, 0x2F, 0x8F, 0x41, 0x93, 0x89, 0x8B}
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] not in writes or not pdu.cdb[1] >> 5:
        return pdu
    return replace(pdu, cdb=pdu.cdb[:1] + bytes((pdu.cdb[1] & 0x1F,)) + pdu.cdb[2:])


def _notifies(row: str, event: Callable[[int, int, bool], bool]) -> None:
    """A mutant whose other nexuses get RESERVATIONS RELEASED: ``event(service action, type, is there one)``."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        shared = talk.shared
        if (action := _done(talk, pdu)) is not None:
            if event(action, talk.cdb(pdu)[2] & 0x0F, bool(shared.get("reserved"))):
                shared["notified-by"] = talk.name
            shared["reserved"] = action == RESERVE or (shared.get("reserved") and action in REGISTERS)
        source = shared.get("notified-by", talk.name)
        if talk.cdb(pdu)[0] == 0x00 and ends(pdu) and source != talk.name:
            shared.pop("notified-by")
            return check(pdu, SenseKey.UNIT_ATTENTION, Asc.RESERVATIONS_RELEASED)
        return pdu


_notifies(
    "release-attention-any-type | SPC-4 RELEASE, unit attention | also a release of type 1 or 3 sets one",
    lambda action, kind, _: action == 2 and kind in (1, 3),
)
_notifies(
    "register-attention | SPC-4 reservations, unit attention | a REGISTER sets one under a reservation",
    lambda action, _, held: action in REGISTERS and held,
)
_notifies(
    "reserve-attention | SPC-4 reservations, unit attention | a repeated RESERVE of the holder sets one",
    lambda action, _, held: action == RESERVE and held,
)
