"""Broken rules of SMB2 that show in what several requests leave: data, names, opens, locks and attributes."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct
from collections.abc import Callable

from smb2_proxy_connection import SmbProxyConnection, asks, mutant, put, requests, same
from smb2_unseen_mutants import _succeeded

from storagetest.wire.smb2.codes import Disposition, FileInfo, InfoType, Options, SmbCommand
from storagetest.wire.smb2.message import SmbMessage

PAGE = 4096
LARGE = 64 * 1024


def _asked(talk: SmbProxyConnection, message: SmbMessage) -> SmbMessage | None:
    return talk.asked.get(message["message_id"])


def _sets_info(message: SmbMessage, info_class: FileInfo) -> bool:
    wanted = message.command == SmbCommand.SET_INFO and message["info_type"] == InfoType.FILE
    return bool(wanted and message["info_class"] == info_class)


# Data


@requests(
    "write-odd-at-512 | MS-FSA 2.1.5.4 | a write at an odd offset behind the first page begins at a multiple of 512"
)
def write_odd_at_512(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.WRITE or message["offset"] <= PAGE or not message["offset"] % 2:
        return message.raw
    return message.encoded().override(offset=message["offset"] & ~511).data


@requests("read-odd-far-even | MS-FSA 2.1.5.3 | a read at an odd offset above 64 KiB begins a byte before it")
def read_odd_far_even(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.READ or message["offset"] <= LARGE or not message["offset"] % 2:
        return message.raw
    return message.encoded().override(offset=message["offset"] - 1).data


@mutant(
    "shrunk-data-returns | MS-FSA 2.1.5.15.4 | a file that was made shorter and longer has a byte of its old data"
)
def shrunk_data_returns(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if asked is None:
        return message.raw
    if _succeeded(message, SmbCommand.SET_INFO) and _sets_info(asked, FileInfo.END_OF_FILE):
        size = int.from_bytes(asked.buffer[:8], "little")
        talk.shared[asked["file_id"]] = min(size, talk.shared.get(asked["file_id"], size))
    if not _succeeded(message, SmbCommand.READ) or asked["file_id"] not in talk.shared:
        return message.raw
    at = talk.shared[asked["file_id"]] - asked["offset"]
    returns = 0 <= at < len(message.buffer) and not message.buffer[at]
    return put(message.raw, message["buffer_offset"] + at, b"A") if returns else message.raw


def _after_flush(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command == SmbCommand.FLUSH:
        talk.shared[message["file_id"]] = True
    if message.command != SmbCommand.WRITE or message["file_id"] not in talk.shared:
        return message.raw
    return message.encoded().override(offset=1 << 40).data


mutant(
    "write-after-flush-elsewhere | MS-SMB2 3.3.5.11 | writes after a FLUSH are not where they should be",
    request=_after_flush,
)(same)


@mutant("read-tail-zero | MS-FSA 2.1.5.3 | the last of 4n + 3 bytes of a read of more than 1000 is zero")
def read_tail_zero(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    size = len(message.buffer)
    if not _succeeded(message, SmbCommand.READ) or size <= 1000 or size % 4 != 3:
        return message.raw
    return put(message.raw, message["buffer_offset"] + size - 1, b"\0")


# Names


@mutant(
    "rename-listed-old | MS-FSA 2.1.5.6.3 | a file that was renamed is listed by its old name, if it is as long"
)
def rename_listed_old(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    asked = _asked(talk, message)
    if asked is None:
        return message.raw
    if _succeeded(message, SmbCommand.CREATE):
        talk.shared[message["file_id"]] = asked.buffer.decode("utf-16-le").rsplit("\\", 1)[-1]
    if _succeeded(message, SmbCommand.SET_INFO) and _sets_info(asked, FileInfo.RENAME):
        new = asked.buffer[20:].decode("utf-16-le", "replace").rsplit("\\", 1)[-1]
        talk.shared.setdefault("renamed", {})[new] = talk.shared.get(asked["file_id"], "")
    if not _succeeded(message, SmbCommand.QUERY_DIRECTORY):
        return message.raw
    data = message.raw
    for new, old in talk.shared.get("renamed", {}).items():
        if len(new) == len(old):
            data = data.replace(new.encode("utf-16-le"), old.encode("utf-16-le"))
    return data


@mutant("listing-entry-33-lost | MS-FSA 2.1.5.6.3 | a response of more than 33 entries lacks the 33rd")
def listing_entry_33_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not _succeeded(message, SmbCommand.QUERY_DIRECTORY) or not message.buffer:
        return message.raw
    places, at = [0], 0
    while step := int.from_bytes(message.buffer[at : at + 4], "little"):
        at += step
        places.append(at)
    if len(places) < 34:
        return message.raw
    return put(
        message.raw, message["buffer_offset"] + places[31], (places[33] - places[31]).to_bytes(4, "little")
    )


# Opens and locks


asks(
    "share-none-reads | MS-FSA 2.1.5.1.2.2 | an open with a ShareAccess of 0 shares reading",
    SmbCommand.CREATE,
    share=lambda message: message["share"] or 1,
)


@requests("lock-offset-32 | MS-FSA 2.1.5.8 | a lock has the low 32 bits of its offset")
def lock_offset_32(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.LOCK:
        return message.raw
    data = message.raw
    for number in range(message["lock_count"]):
        data = put(data, 88 + 24 * number + 4, bytes(4))
    return data


# Attributes


def _basic(row: str, change: Callable[[list[int]], None]) -> None:
    """Register a mutant whose server sees other values of FileBasicInformation."""

    def request(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if not _sets_info(message, FileInfo.BASIC) or len(message.buffer) < 36:
            return message.raw
        values = list(struct.unpack_from("<QQQQI", message.buffer))
        change(values)
        return put(message.raw, message["buffer_offset"], struct.pack("<QQQQI", *values))

    mutant(row, request=request)(same)


def _first_alone(values: list[int]) -> None:
    for at in [at for at in range(3) if values[at]][1:]:
        values[at] = 0


def _times_swapped(values: list[int]) -> None:
    if values[1] and values[2]:
        values[1], values[2] = values[2], values[1]


def _reset(values: list[int]) -> None:
    values[4] = values[4] or 0x80


def _times_alone(values: list[int]) -> None:
    if any(values[:4]):
        values[4] = 0


_basic("times-first-alone | MS-FSCC 2.4.7 | of several times the first is set", _first_alone)
_basic(
    "times-swapped | MS-FSCC 2.4.7 | LastAccessTime and LastWriteTime that are set together are swapped",
    _times_swapped,
)
_basic("attributes-zero-reset | MS-FSCC 2.4.7 | FileAttributes of 0 reset the attributes", _reset)
_basic(
    "attributes-with-times-lost | MS-FSCC 2.4.7 | attributes that are set with times are not set",
    _times_alone,
)


@requests("create-directory-opens | MS-FSA 2.1.5.1.2 | FILE_CREATE of a directory that exists opens it")
def create_directory_opens(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.CREATE or message["disposition"] != Disposition.CREATE:
        return message.raw
    if not message["options"] & Options.DIRECTORY_FILE:
        return message.raw
    return message.encoded().override(disposition=Disposition.OPEN_IF).data
