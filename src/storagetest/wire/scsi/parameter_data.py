"""Form of parameter data that a command returned: what their length fields state, and what came.

:func:`parameter_faults` needs the CDB, the bytes and the initiator's limit, and judges any command of its
table (SPC-4, SBC-3). It knows nothing of the unit: each rule holds whatever the unit offers.

- Data-in is never longer than the allocation length of the CDB (SPC-4 4.2.5.6).
- It has all bytes that its own length field states, unless the allocation length or the initiator cuts it.
- A list has whole descriptors.
- A command that is reported has the length of its operation code's group, and its service action
  (SPC-4 4.2.5.1, REPORT SUPPORTED OPERATION CODES).

The sense data of REQUEST SENSE have cases of their own: some targets fill them up to the allocation length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from storagetest.wire.bitfields import get
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import COMMANDS, CommandFormat
from storagetest.wire.scsi.codes import PrIn

Stated = Callable[[bytes, bytes], int | None]
"""Returns the whole length of parameter data, from the CDB and the first bytes; None if it is not there."""


@dataclass(frozen=True, slots=True)
class _Length:
    """A length field: ``size`` bytes at ``at``, which count what follows byte ``after - 1``."""

    at: int
    size: int
    after: int

    def __call__(self, _block: bytes, data: bytes) -> int | None:
        """Return the whole length that the field states."""
        field = data[self.at : self.at + self.size]
        return self.after + int.from_bytes(field, "big") if len(field) == self.size else None


def _inquiry(block: bytes, data: bytes) -> int | None:
    return (_Length(2, 2, 4) if block[1] & 1 else _Length(4, 1, 5))(block, data)


def _reserve_in(block: bytes, data: bytes) -> int | None:
    if block[1] & 0x1F == PrIn.REPORT_CAPABILITIES:
        return _Length(0, 2, 0)(block, data)
    return _Length(4, 4, 8)(block, data)


def _opcodes(block: bytes, data: bytes) -> int | None:
    """One command's data are undefined behind SUPPORT 0 and 1 (SPC-4)."""
    if not block[2] & 7:
        return _Length(0, 4, 4)(block, data)
    if len(data) < 4 or data[1] & 7 not in (3, 5):
        return None
    return 4 + int.from_bytes(data[2:4], "big") + 12 * (data[1] >> 7)


def _port_groups(block: bytes, data: bytes) -> int | None:
    extended = block[1] & 0xE0  # its header is another one
    return None if extended else _Length(0, 4, 4)(block, data)


_STATED: Mapping[CommandFormat, Stated] = {
    c.INQUIRY: _inquiry,
    c.MODE_SENSE_6: _Length(0, 1, 1),
    c.MODE_SENSE_10: _Length(0, 2, 2),
    c.LOG_SENSE: _Length(2, 2, 4),
    c.READ_CAPACITY_10: lambda _block, _data: 8,
    c.READ_CAPACITY_16: lambda _block, _data: 32,
    c.GET_LBA_STATUS: _Length(0, 4, 4),
    c.REPORT_LUNS: _Length(0, 4, 8),
    c.PERSISTENT_RESERVE_IN: _reserve_in,
    c.REPORT_SUPPORTED_OPERATION_CODES: _opcodes,
    c.REPORT_TARGET_PORT_GROUPS: _port_groups,
    c.REPORT_TASK_MANAGEMENT: _Length(3, 1, 4),
}
"""What each command states as the whole length of its data."""
_ALLOCATION = {
    command: next((place for place in command.fields if place.name == "allocation"), None)
    for command in _STATED
}


def command_of(block: bytes) -> CommandFormat | None:
    """Return the command of a CDB, if its data have a length that it states."""
    found = COMMANDS.get((block[0], block[1] & 0x1F)) or COMMANDS.get((block[0], None))
    return found if found in _STATED else None


def parameter_faults(block: bytes, data: bytes, expected: int) -> list[str]:
    """Return a sentence for each rule that the data of a command that ended in GOOD break.

    ``expected`` is the number of bytes that the initiator takes. A command that is not known has no faults.
    """
    command = command_of(block)
    if command is None:
        return []
    place = _ALLOCATION[command]
    allocation = expected if place is None else int(get(block, place))
    if len(data) > allocation:
        return [f"{command.name}: {len(data)} bytes, and ALLOCATION LENGTH is {allocation}"]
    stated = _STATED[command](block, data)
    if stated is None:
        return []
    due = min(stated, allocation, expected)
    if len(data) != due:
        return [f"{command.name}: its data state {stated} bytes, and {len(data)} of {due} came"]
    if len(data) < stated:
        return []
    return [f"{command.name}: {fault}" for fault in _contents(command, block, data)]


def _contents(command: CommandFormat, block: bytes, data: bytes) -> Iterator[str]:
    """Yield the faults of whole data: the descriptors fill them."""
    match command:
        case c.REPORT_LUNS:
            yield from _multiple("LUN LIST LENGTH", len(data) - 8, 8)
        case c.GET_LBA_STATUS:
            yield from _multiple("the LBA status descriptors", len(data) - 8, 16)
        case c.MODE_SENSE_6 | c.MODE_SENSE_10:
            yield from _mode_pages(data, long=command is c.MODE_SENSE_10)
        case c.LOG_SENSE if data[0] & 0x3F and not data[1]:
            yield from _filled("a log parameter", data[4:], lambda rest: 4 + rest[3], 4)
        case c.INQUIRY if block[1] & 1 and block[2] == 0x83:
            yield from _filled("a designator", data[4:], lambda rest: 4 + rest[3], 4)
        case c.PERSISTENT_RESERVE_IN:
            yield from _reservations(PrIn(block[1] & 0x1F), data)
        case c.REPORT_SUPPORTED_OPERATION_CODES if not block[2] & 7:
            yield from _filled("a command descriptor", data[4:], _descriptor_size, 8)
            yield from _listed(data[4:])
        case c.REPORT_SUPPORTED_OPERATION_CODES if data[1] & 7 == 3:
            yield from _command_length(block[3], int.from_bytes(data[2:4], "big"), "CDB SIZE")
        case c.REPORT_TARGET_PORT_GROUPS:
            yield from _filled("a target port group", data[4:], lambda rest: 8 + 4 * rest[7], 8)


_LENGTHS = {0: 6, 1: 10, 2: 10, 4: 16, 5: 12}
"""CDB length by group code, the upper three bits of the operation code; the others vary (SPC-4 4.2.5.1)."""
_VARIABLE = 0x7F
"""Operation code of a CDB of variable length, in the group of those of 10 bytes and more."""
_WITH_ACTIONS = frozenset(code for code, action in COMMANDS if action is not None) | {
    c.PERSISTENT_RESERVE_IN.opcode,
    c.PERSISTENT_RESERVE_OUT.opcode,
}
"""Operation codes whose commands have service actions, of those that are known here."""


def _descriptor_size(rest: bytes) -> int:
    return 20 if rest[5] & 2 else 8


def _command_length(code: int, length: int, field: str) -> Iterator[str]:
    due = None if code == _VARIABLE else _LENGTHS.get(code >> 5)
    if due is not None and length != due:
        yield f"{field} of operation code {code:02x}h is {length}, not {due}"


def _listed(rest: bytes) -> Iterator[str]:
    """Yield the faults of the command descriptors of a list."""
    while len(rest) >= 8:
        code, has_action = rest[0], rest[5] & 1
        yield from _command_length(code, int.from_bytes(rest[6:8], "big"), "CDB LENGTH")
        if code in _WITH_ACTIONS and not has_action:
            yield f"SERVACTV of operation code {code:02x}h is 0, and it has service actions"
        rest = rest[_descriptor_size(rest) :]


def _multiple(what: str, length: int, size: int) -> Iterator[str]:
    if length % size:
        yield f"{what}: {length} bytes, no multiple of {size}"


def _filled(what: str, rest: bytes, size: Callable[[bytes], int], head: int) -> Iterator[str]:
    """Yield a fault if descriptors with a head of ``head`` bytes do not end where the data end."""
    while len(rest) >= head and len(rest) >= size(rest):
        rest = rest[size(rest) :]
    if rest:
        yield f"{what} ends past the data: {rest[:8].hex()}"


def _mode_pages(data: bytes, *, long: bool) -> Iterator[str]:
    head = 8 if long else 4
    if len(data) < head:
        yield f"{len(data)} bytes are no mode parameter header"
        return
    blocks = int.from_bytes(data[6:8], "big") if long else data[3]
    yield from _multiple("BLOCK DESCRIPTOR LENGTH", blocks, 16 if long and data[4] & 1 else 8)
    if head + blocks > len(data):
        yield f"BLOCK DESCRIPTOR LENGTH is {blocks}, of {len(data) - head} bytes"
        return
    if data[2 if long else 1]:
        return  # the pages of another medium type may have the vendor's format
    yield from _filled("a mode page", data[head + blocks :], _page_size, 4)


def _page_size(rest: bytes) -> int:
    """Return the length of a mode page, in page_0 or sub_page format; page 00h is in the vendor's."""
    if not rest[0] & 0x3F:
        return len(rest)
    return 4 + int.from_bytes(rest[2:4], "big") if rest[0] & 0x40 else 2 + rest[1]


def _reservations(action: PrIn, data: bytes) -> Iterator[str]:
    match action:
        case PrIn.READ_KEYS:
            yield from _multiple("the keys", len(data) - 8, 8)
        case PrIn.READ_RESERVATION if len(data) not in (8, 24):
            yield f"ADDITIONAL LENGTH is {len(data) - 8}, not 0 or 16"
        case PrIn.REPORT_CAPABILITIES if len(data) != 8:
            yield f"LENGTH is {len(data)}, not 8"
        case PrIn.READ_FULL_STATUS:
            size = lambda rest: 24 + int.from_bytes(rest[20:24], "big")  # noqa: E731  # of one descriptor
            yield from _filled("a full status descriptor", data[8:], size, 24)
