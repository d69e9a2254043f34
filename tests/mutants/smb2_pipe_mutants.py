"""Broken rules of named pipes."""

from smb2_proxy_connection import SmbProxyConnection, mutant, put, sets

from storagetest.wire.smb2.codes import Fsctl, SmbCommand, SmbStatus
from storagetest.wire.smb2.message import SmbMessage


def is_transceive(message: SmbMessage) -> bool:
    is_it = message.command == SmbCommand.IOCTL and not message.is_error
    return is_it and bool(message["control_code"] == Fsctl.PIPE_TRANSCEIVE)


sets("share-type-disk | MS-SMB2 3.3.5.7 | every share is a disk", SmbCommand.TREE_CONNECT, share_type=1)


@mutant("pipe-data-other | MS-SMB2 3.3.5.15.3 | a transceive returns other data")
def pipe_data_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not is_transceive(message) or not message.buffer:
        return message.raw
    return put(message.raw, len(message.raw) - len(message.buffer), b"\4")


@mutant("pipe-overflow-hidden | MS-SMB2 3.3.5.15 | a part of an answer seems to be the whole")
def pipe_overflow_hidden(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if not is_transceive(message) or message.status != SmbStatus.BUFFER_OVERFLOW:
        return message.raw
    return message.encoded().override(status=0).data


@mutant("pipe-read-other | MS-SMB2 3.3.5.12 | a READ returns other bytes than the pipe's")
def pipe_read_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.READ or message.is_error or not message.buffer:
        return message.raw
    return put(message.raw, len(message.raw) - len(message.buffer), bytes(len(message.buffer)))
