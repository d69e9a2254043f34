"""Persistent reservations through a client's kernel: the ioctls of linux/pr.h.

The kernel sends PERSISTENT RESERVE OUT (SPC-4 6.16) or NVMe's Reservation Register, Acquire and Release (Base
7.5 to 7.8). An ioctl returns 0, or the target's status if it rejected the command.
"""

from __future__ import annotations

import struct

KINDS = {
    "write exclusive": 1,
    "exclusive access": 2,
    "write exclusive, registrants only": 3,
    "exclusive access, registrants only": 4,
    "write exclusive, all registrants": 5,
    "exclusive access, all registrants": 6,
}
"""enum pr_type: the access that others are denied, and which clients are excepted."""

CONFLICT = "EBADE"
"""The error of a read or a write that a reservation denies (BLK_STS_RESV_CONFLICT)."""

_IGNORE_KEY = 1
_WRITES = 1 << 30
_STATUS = 0x7FF
"""NVMe's status, its type included. Of SCSI's result the lowest byte is the status."""
_CONFLICTS = {0x18, 0x83}
"""SCSI's RESERVATION CONFLICT (SAM-5 5.3.1), NVMe's Reservation Conflict (Base 4.2.3.1)."""
_INVALID_OPCODE = 0x01
CHECK_CONDITION = 0x02
"""SCSI's status (SAM-5 5.3.1) if the target reports something else first, such as a unit attention."""


Request = tuple[int, bytes]
"""An ioctl: its number and its argument."""


def register(key: int, *, old: int = 0, ignore: bool = False) -> Request:
    """IOC_PR_REGISTER: register ``key`` for this client, or unregister (0); ``ignore`` its current key."""
    return _request(200, struct.pack("=QQII", old, key, _IGNORE_KEY if ignore else 0, 0))


def reserve(key: int, kind: str) -> Request:
    """IOC_PR_RESERVE."""
    return _request(201, struct.pack("=QII", key, KINDS[kind], 0))


def release(key: int, kind: str) -> Request:
    """IOC_PR_RELEASE."""
    return _request(202, struct.pack("=QII", key, KINDS[kind], 0))


def preempt(key: int, victim: int, kind: str, *, abort: bool = False) -> Request:
    """IOC_PR_PREEMPT, or IOC_PR_PREEMPT_ABORT: take the reservation, and the registration, of ``victim``.

    Linux sends the first key as the client's own and the second as the victim's (sd.c, nvme's pr.c), whatever
    Documentation/block/pr.rst calls them.
    """
    return _request(204 if abort else 203, struct.pack("=QQII", key, victim, KINDS[kind], 0))


def clear(key: int) -> Request:
    """IOC_PR_CLEAR: remove the reservation and all registrations."""
    return _request(205, struct.pack("=QII", key, 0, 0))


def conflicts(returned: int) -> bool:
    """Return whether the target rejected the command because of a reservation or a missing key."""
    return returned & 0xFF in _CONFLICTS


def unknown(returned: int) -> bool:
    """Return whether the target does not support the command (NVMe: Invalid Command Opcode)."""
    return returned & _STATUS == _INVALID_OPCODE


def _request(number: int, data: bytes) -> Request:
    return _WRITES | len(data) << 16 | ord("p") << 8 | number, data
