"""Command descriptor blocks of optional commands that few units have (SPC-4, SPC-2), as in ``cdb.py``.

They are apart from the table there, whose commands a case tries one after another: none of these is sent to a
unit but by the case that is about it.
"""

from __future__ import annotations

from storagetest.wire.bitfields import bitfield, flag, uint
from storagetest.wire.scsi.cdb import CommandFormat

RECEIVE_DIAGNOSTIC_RESULTS = CommandFormat(
    "RECEIVE DIAGNOSTIC RESULTS",
    0x1C,
    6,
    (bitfield("pcv", 1, 0, 1), uint("page", 2, 1), uint("allocation", 3, 2)),
)
_BUFFER = (
    bitfield("mode", 1, 0, 5),
    uint("buffer", 2, 1),
    uint("offset", 3, 3),
    uint("allocation", 6, 3),
)
WRITE_BUFFER = CommandFormat("WRITE BUFFER", 0x3B, 10, _BUFFER)
READ_BUFFER = CommandFormat("READ BUFFER", 0x3C, 10, _BUFFER)
LOG_SELECT = CommandFormat(
    "LOG SELECT",
    0x4C,
    10,
    (
        flag("pcr", 1, 1),
        flag("sp", 1, 0),
        bitfield("page_control", 2, 6, 2),
        bitfield("page", 2, 0, 6),
        uint("subpage", 3, 1),
        uint("allocation", 7, 2),
    ),
)
RESERVE_10 = CommandFormat("RESERVE(10)", 0x56, 10)
RELEASE_10 = CommandFormat("RELEASE(10)", 0x57, 10)
EXTENDED_COPY = CommandFormat("EXTENDED COPY(LID1)", 0x83, 16, (uint("allocation", 10, 4),), 0x00)
RECEIVE_COPY_PARAMETERS = CommandFormat(
    "RECEIVE COPY OPERATING PARAMETERS", 0x84, 16, (uint("allocation", 10, 4),), 0x03
)
_REPORT = (uint("allocation", 6, 4),)
REPORT_IDENTIFYING_INFORMATION = CommandFormat("REPORT IDENTIFYING INFORMATION", 0xA3, 12, _REPORT, 0x05)
REPORT_ALIASES = CommandFormat("REPORT ALIASES", 0xA3, 12, _REPORT, 0x0B)
REPORT_PRIORITY = CommandFormat("REPORT PRIORITY", 0xA3, 12, _REPORT, 0x0E)
REPORT_TIMESTAMP = CommandFormat("REPORT TIMESTAMP", 0xA3, 12, _REPORT, 0x0F)
REPORT_EXTENDED_GROUPS = CommandFormat(
    "REPORT TARGET PORT GROUPS, extended",
    0xA3,
    12,
    (bitfield("format", 1, 5, 3), *_REPORT),
    0x0A,
)
SET_TARGET_PORT_GROUPS = CommandFormat("SET TARGET PORT GROUPS", 0xA4, 12, (uint("allocation", 6, 4),), 0x0A)

SELDOM = {
    (command.opcode, command.service_action): command
    for command in list(globals().values())
    if isinstance(command, CommandFormat) and command is not REPORT_EXTENDED_GROUPS
}
"""Each of them by operation code and service action."""
