"""Broken rules of SMB of a third list: one field of a response that another response states, too."""

from __future__ import annotations

import struct
from collections.abc import Callable

from smb2_proxy_connection import SmbProxyConnection, asks, mutant, put, sets

from storagetest.wire.smb2.codes import FileInfo, FsInfo, InfoType, SmbCommand
from storagetest.wire.smb2.message import SmbMessage

BITS_31 = 0x7FFF_FFFF


def _succeeded(message: SmbMessage, command: SmbCommand) -> bool:
    return message.command == command and not message.is_error and not message.status


def _information(row: str, kind: InfoType, number: int, change: Callable[[bytes], bytes]) -> None:
    """Register a mutant that changes what QUERY_INFO returns for a class."""

    @mutant(row)
    def changed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        asked = talk.asked.get(message["message_id"])
        if not _succeeded(message, SmbCommand.QUERY_INFO) or asked is None or not message.buffer:
            return message.raw
        if (asked["info_type"], asked["info_class"]) != (kind, number):
            return message.raw
        return put(message.raw, message["buffer_offset"], change(message.buffer))


def _entries(row: str, classes: dict[int, int], piece: bytes) -> None:
    """Register a mutant that sets bytes of each entry of a listing; ``classes`` are their offsets."""

    @mutant(row)
    def changed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        asked = talk.asked.get(message["message_id"])
        if not _succeeded(message, SmbCommand.QUERY_DIRECTORY) or asked is None or not message.buffer:
            return message.raw
        where, out, at = classes.get(asked["info_class"]), message.raw, 0
        while where is not None:
            out = put(out, message["buffer_offset"] + at + where, piece)
            step = int.from_bytes(message.buffer[at : at + 4], "little")
            if not step:
                break
            at += step
        return out


sets(
    "create-allocation-zero | MS-SMB2 2.2.14 | AllocationSize of CREATE is 0",
    SmbCommand.CREATE,
    allocation_size=0,
)
sets(
    "close-change-zero | MS-SMB2 2.2.16 | ChangeTime of CLOSE is 0",
    SmbCommand.CLOSE,
    change_time=0,
)
_information(
    "network-open-hidden | MS-FSCC 2.4.33 | FileNetworkOpenInformation has the attribute HIDDEN",
    InfoType.FILE,
    FileInfo.NETWORK_OPEN,
    lambda data: put(data, 48, bytes([data[48] | 2])),
)
_information(
    "position-zero | MS-FSA 2.1.5.15 | a position that was set is 0",
    InfoType.FILE,
    FileInfo.POSITION,
    lambda _data: bytes(8),
)
_entries(
    "listing-write-time-zero | MS-FSCC 2.4 | LastWriteTime of a listing is 0",
    {
        FileInfo.DIRECTORY: 24,
        FileInfo.FULL_DIRECTORY: 24,
        FileInfo.BOTH_DIRECTORY: 24,
        FileInfo.ID_BOTH_DIRECTORY: 24,
        FileInfo.ID_FULL_DIRECTORY: 24,
    },
    bytes(8),
)
_entries(
    "listing-file-id | MS-FSCC 2.4 | FileId of a listing is that of no file",
    {FileInfo.ID_BOTH_DIRECTORY: 96, FileInfo.ID_FULL_DIRECTORY: 72},
    b"\x77" * 8,
)
_information(
    "volume-available-more | MS-FSCC 2.5.4 | more units of a volume are available than there are",
    InfoType.FILESYSTEM,
    FsInfo.FULL_SIZE,
    lambda data: put(data, 8, struct.pack("<Q", 2 * int.from_bytes(data[:8], "little"))),
)
_information(
    "volume-label-short | MS-FSCC 2.5.9 | the length of a volume's label is in characters",
    InfoType.FILESYSTEM,
    FsInfo.VOLUME,
    lambda data: put(data, 12, struct.pack("<I", int.from_bytes(data[12:16], "little") // 2)),
)
sets(
    "tree-maximal-access-zero | MS-SMB2 2.2.10 | MaximalAccess of a tree is 0",
    SmbCommand.TREE_CONNECT,
    maximal_access=0,
)
sets(
    "share-type-other | MS-SMB2 2.2.10 | ShareType of a disk is PIPE, and that of pipes DISK",
    SmbCommand.TREE_CONNECT,
    share_type=lambda message: {1: 2, 2: 1}.get(message["share_type"], 1),
)
sets(
    "ioctl-file-zero | MS-SMB2 2.2.32 | FileId of an IOCTL is 0",
    SmbCommand.IOCTL,
    file_id=bytes(16),
)
sets(
    "close-tree-zero | MS-SMB2 3.3.4.3 | the TreeId of a CLOSE is 0",
    SmbCommand.CLOSE,
    tree_id=0,
)
sets(
    "read-charge-zero | MS-SMB2 3.3.4.1 | CreditCharge of a READ is 0",
    SmbCommand.READ,
    credit_charge=0,
)
for _name, _command in (("read", SmbCommand.READ), ("write", SmbCommand.WRITE)):
    asks(
        f"{_name}-offset-31 | MS-SMB2 2.2.19, 2.2.21 | a {_command.name} uses the low 31 bits of its offset",
        _command,
        offset=lambda message: message["offset"] & BITS_31,
    )


_information(
    "access-time-zero | MS-FSCC 2.4.7 | LastAccessTime of FileBasicInformation is 0",
    InfoType.FILE,
    FileInfo.BASIC,
    lambda data: put(data, 8, bytes(8)),
)
_information(
    "all-name-other | MS-FSCC 2.4.2 | the name in FileAllInformation is another",
    InfoType.FILE,
    FileInfo.ALL,
    lambda data: put(data, len(data) - 2, b"X"),
)
_information(
    "device-type-zero | MS-FSCC 2.5.10 | the device of a volume is of no type",
    InfoType.FILESYSTEM,
    FsInfo.DEVICE,
    lambda data: put(data, 0, bytes(4)),
)
sets("write-remaining | MS-SMB2 2.2.22 | Remaining of a WRITE is not 0", SmbCommand.WRITE, remaining=5)
