"""What several modules of the suite use: parameters with a case mark, and requests of several cases."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from storagetest.wire.smb2.client import SmbFile, SmbSession, Tree
from storagetest.wire.smb2.codes import (
    Access,
    Dialect,
    Disposition,
    Fsctl,
    FsInfo,
    InfoType,
    Options,
    SmbCommand,
    SmbNotify,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import SmbMessage, request

READ, WRITE, DELETE = Access.GENERIC_READ, Access.GENERIC_WRITE, Access.DELETE

SMB3 = (Dialect.SMB_3_0, Dialect.SMB_3_0_2, Dialect.SMB_3_1_1)
"""The dialects of the family 3.x."""


def case(identifier: str, *values: Any, kills: Sequence[str] = (), **more: Any) -> Any:
    """Return a parameter set with the mark of its case."""
    return pytest.param(*values, marks=pytest.mark.case(identifier, kills=tuple(kills), **more))


def open_directory(tree: Tree, name: str, *, access: int = READ) -> SmbFile:
    """Open a directory that exists."""
    return tree.open(name, access=access, disposition=Disposition.OPEN, options=Options.DIRECTORY_FILE)


NO_NOTIFICATIONS = (SmbStatus.NOT_SUPPORTED, SmbStatus.NOT_IMPLEMENTED)
"""Statuses of CHANGE_NOTIFY where the object store has no notifications; the second one is ksmbd's."""


def watch(opened: SmbFile, changes: int = SmbNotify.FILE_NAME, *, flags: int = 0, length: int = 4096) -> int:
    """Send CHANGE_NOTIFY and wait for its interim response; return its id. Skip if it is not supported."""
    encoded = request(
        SmbCommand.CHANGE_NOTIFY, file_id=opened.file_id, filter=changes, output_length=length, flags=flags
    )
    mid = opened.tree.send(encoded)[0]
    connection = opened.tree.session.connection
    if connection.receive_interim(mid) is None and connection.status_of(mid) in NO_NOTIFICATIONS:
        pytest.skip("the server has no notifications of changes (3.3.5.19)")
    return mid


def expect_refused(message: SmbMessage, status: SmbStatus) -> None:
    """Check that CHANGE_NOTIFY was refused with ``status``; skip if the server has no notifications."""
    if message.status in NO_NOTIFICATIONS:
        pytest.skip("the server has no notifications of changes (3.3.5.19)")
    expect(message, status)


NO_FSCTL = (SmbStatus.NOT_SUPPORTED, SmbStatus.INVALID_DEVICE_REQUEST)
"""Statuses of an FSCTL that the server, or the file system, does not have (3.3.5.15)."""

NO_LINKS = (
    SmbStatus.NOT_SUPPORTED,
    SmbStatus.INVALID_DEVICE_REQUEST,
    SmbStatus.INVALID_INFO_CLASS,
    SmbStatus.NOT_IMPLEMENTED,
)
"""How servers refuse FileLinkInformation if the file system has no hard links (MS-FSA 2.1.5.15.6)."""


PERSISTENT_ACLS = 0x8
"""FILE_PERSISTENT_ACLS of FileFsAttributeInformation (MS-FSCC 2.5.1)."""


def skip_without_security(file: SmbFile) -> None:
    """Skip if the file system of ``file`` states that it keeps no access lists (MS-SMB2 3.3.5.21.3)."""
    data = expect(file.query(FsInfo.ATTRIBUTE, kind=InfoType.FILESYSTEM)).buffer
    if not struct.unpack_from("<I", data)[0] & PERSISTENT_ACLS:
        pytest.skip("the file system keeps no access lists (FileFsAttributeInformation)")


def skip_if_encrypted(tree: Tree) -> None:
    """Skip on a share that requires encryption.

    Its messages are not signed (3.1.4.1), and one of a session that has ended has no response: the connection
    ends (3.3.5.2.1.1).
    """
    if tree.session.channel.encrypts:
        pytest.skip("the share requires encryption")


def skip_if_guest(session: SmbSession) -> None:
    """Skip if the server logged the account on as a guest or as anonymous, which it may (3.3.5.5.3)."""
    if session.channel.is_guest:
        pytest.skip("the server logs the account on as a guest (3.3.5.5.3)")


def resume_key(file: SmbFile) -> bytes:
    """Return the key of a source of server-side copies (2.2.32.3); skip if the server has none (3.3.5.15)."""
    message = file.ioctl(Fsctl.SRV_REQUEST_RESUME_KEY, max_output=32)
    if message.status in NO_FSCTL:
        pytest.skip("the server has no server-side copies (3.3.5.15)")
    return expect(message).buffer[:24]


def chunks(key: bytes, *each: tuple[int, int, int]) -> bytes:
    """Return SRV_COPYCHUNK_COPY of chunks (source offset, target offset, length) (2.2.31.1)."""
    return key + struct.pack("<II", len(each), 0) + b"".join(struct.pack("<QQII", *one, 0) for one in each)


def basic_information(attributes: int) -> bytes:
    """Return FileBasicInformation that sets no time (MS-FSCC 2.4.7)."""
    return struct.pack("<32xII", attributes, 0)


def link_information(path: str) -> bytes:
    """Return FileLinkInformation that replaces nothing (MS-FSCC 2.4.28.2)."""
    name = path.encode("utf-16-le")
    return struct.pack("<8xQI", 0, len(name)) + name
