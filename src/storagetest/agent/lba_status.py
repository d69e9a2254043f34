"""The mapped bytes of a thinly provisioned disk, by GET LBA STATUS (SBC-3 5.7); discards of free space.

The command is sent through the kernel's SG_IO (sg(4)) to the disk that a file system is on.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import struct

_SG_IO = 0x2285
_BLKSSZGET, _BLKGETSIZE64 = 0x1268, 0x80081272
_FITRIM = 0xC0185879
_FROM_DEVICE = -3
_ALLOCATION = 8192
_DEALLOCATED = 1
_TIMEOUT_MS = 30_000
_DESCRIPTOR = struct.Struct(">QIB3x")


class _SgIoHeader(ctypes.Structure):
    """``struct sg_io_hdr`` of the kernel's include/scsi/sg.h."""

    _fields_ = (
        ("interface_id", ctypes.c_int),
        ("direction", ctypes.c_int),
        ("command_length", ctypes.c_ubyte),
        ("sense_capacity", ctypes.c_ubyte),
        ("iovec_count", ctypes.c_ushort),
        ("data_length", ctypes.c_uint),
        ("data", ctypes.c_void_p),
        ("command", ctypes.c_void_p),
        ("sense", ctypes.c_void_p),
        ("timeout", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("pack_id", ctypes.c_int),
        ("user", ctypes.c_void_p),
        ("status", ctypes.c_ubyte),
        ("masked_status", ctypes.c_ubyte),
        ("message_status", ctypes.c_ubyte),
        ("sense_length", ctypes.c_ubyte),
        ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort),
        ("residual", ctypes.c_int),
        ("duration", ctypes.c_uint),
        ("info", ctypes.c_uint),
    )


def disk_of(path: bytes) -> bytes | None:
    """Return the device that the file system of ``path`` is on; None if it is on no block device."""
    device = os.stat(path).st_dev
    try:
        with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/uevent", encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    names = [line.partition("=")[2] for line in lines if line.startswith("DEVNAME=")]
    return os.fsencode(f"/dev/{names[0]}") if names else None


def mapped_bytes(device: bytes) -> int:
    """Return the bytes of ``device`` that are not deallocated.

    Raises OSError if the disk refuses the command, or reports all blocks as mapped, as a target does that
    does not know its holes.
    """
    descriptor = os.open(device, os.O_RDONLY)
    try:
        size, block = array.array("Q", [0]), array.array("i", [0])
        fcntl.ioctl(descriptor, _BLKGETSIZE64, size)
        fcntl.ioctl(descriptor, _BLKSSZGET, block)
        mapped, lba, end = 0, 0, size[0] // block[0]
        while lba < end:
            following = lba
            for start, count, status in _parse(_lba_status(descriptor, lba)):
                following = start + count
                if status & 0x0F != _DEALLOCATED:
                    mapped += max(0, min(following, end) - max(start, lba))
            if following <= lba:
                raise OSError(errno.EPROTO, f"GET LBA STATUS lists nothing from block {lba} on")
            lba = following
        if mapped == end:
            raise OSError(errno.ENODATA, "GET LBA STATUS reports every block as mapped")
        return mapped * block[0]
    finally:
        os.close(descriptor)


def trim(path: bytes) -> bool:
    """Discard the free space of the file system of ``path`` (FITRIM); return whether that is possible."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _FITRIM, struct.pack("QQQ", 0, (1 << 64) - 1, 0))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _parse(data: bytes) -> list[tuple[int, int, int]]:
    """Return first block, number of blocks and provisioning status of each whole descriptor."""
    listed = data[8 : 4 + int.from_bytes(data[:4], "big")]
    return list(_DESCRIPTOR.iter_unpack(listed[: len(listed) // _DESCRIPTOR.size * _DESCRIPTOR.size]))


def _lba_status(descriptor: int, lba: int) -> bytes:
    """Return GET LBA STATUS data from block ``lba`` on. Raises OSError if the disk refuses the command."""
    command = ctypes.create_string_buffer(struct.pack(">BBQIBB", 0x9E, 0x12, lba, _ALLOCATION, 0, 0), 16)
    data, sense = ctypes.create_string_buffer(_ALLOCATION), ctypes.create_string_buffer(64)
    header = _SgIoHeader(
        interface_id=ord("S"),
        direction=_FROM_DEVICE,
        command_length=16,
        sense_capacity=len(sense),
        data_length=_ALLOCATION,
        data=ctypes.addressof(data),
        command=ctypes.addressof(command),
        sense=ctypes.addressof(sense),
        timeout=_TIMEOUT_MS,
    )
    fcntl.ioctl(descriptor, _SG_IO, header)
    if header.status or header.host_status or header.driver_status & 0x0F:
        raise OSError(errno.EOPNOTSUPP, f"GET LBA STATUS: SCSI status {header.status:#04x}")
    return data.raw[: _ALLOCATION - header.residual]
