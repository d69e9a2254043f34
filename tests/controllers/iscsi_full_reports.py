"""What the unit of ``iscsi_full_unit.py`` reports of its commands, and for a logical unit that it is not."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

from iscsi_target import IQN
from iscsi_thin_unit import PORT, ScsiError

from storagetest.wire.iscsi.pdu import ScsiCommand
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import CommandFormat, cdb
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.sense import fixed_sense

NOT_THERE = 0x7F
"""Peripheral qualifier and device type of a logical unit that cannot be there (SPC-4 INQUIRY)."""


def of_absent_unit(pdu: ScsiCommand) -> bytes:
    """Return the data of a command to a logical unit that is absent, or raise what ends it (SAM-5 4.7)."""
    if pdu.cdb[0] == c.INQUIRY.opcode and not pdu.cdb[1] & 1:
        return bytes((NOT_THERE, 0, 6, 2, 31)) + bytes(31)
    if pdu.cdb[0] == c.REQUEST_SENSE.opcode:
        return fixed_sense(SenseKey.ILLEGAL_REQUEST, Asc.LOGICAL_UNIT_NOT_SUPPORTED)
    raise ScsiError(SenseKey.ILLEGAL_REQUEST, Asc.LOGICAL_UNIT_NOT_SUPPORTED)


TIMEOUTS = b"\0\x0a" + bytes(10)
"""A command timeouts descriptor without timeouts."""


def described(command: CommandFormat, action: int | None, *, timeouts: bool) -> bytes:
    flags = (action is not None) | timeouts << 1
    head = struct.pack(">BxHxBH", command.opcode, action or 0, flags, command.length)
    return head + timeouts * TIMEOUTS


def usage_map(command: CommandFormat, action: int | None) -> bytes:
    """Return CDB USAGE DATA: the operation code and the service action, and ones for the fields."""
    names = {place.name for place in command.fields} - {"service_action"}
    values: dict[str, Any] = {}
    for name in names:
        values[name] = _most(command, name)
    data = bytearray(cdb(command, **values))
    if action is not None:
        data[1] = data[1] & 0xE0 | action
    return bytes(data)


def _most(command: CommandFormat, name: str) -> int:
    """Return the largest value of a field."""
    for bits in range(64, 0, -1):
        with contextlib.suppress(Exception):
            cdb(command, **{name: 2**bits - 1})
            return 2**bits - 1
    return 1


def _name(flags: bytes, name: str) -> bytes:
    """Return a SCSI name string designator of iSCSI, of a port (98h) or a device (A8h)."""
    text = name.encode() + b"\0"
    text += bytes(-len(text) % 4)
    return b"\x53" + flags + b"\0" + bytes((len(text),)) + text


_PORT_NAME = _name(b"\x98", f"{IQN},t,0x0001")
PORT_NAMES = _PORT_NAME + _name(b"\xa8", IQN)
"""Names of the target port and of the target device (page 83h)."""
PORTS_PAGE = struct.pack(">2xH6xH", PORT, len(_PORT_NAME)) + _PORT_NAME
"""The body of the SCSI Ports page, with the one target port (SPC-4)."""
