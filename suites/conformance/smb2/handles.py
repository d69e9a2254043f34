"""Durable opens and channels of a session: what several modules of the suite use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.polling import wait_until
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.client import SmbFile, SmbSession, Tree
from storagetest.wire.smb2.codes import (
    SESSION_BINDING,
    Capability,
    Dialect,
    Disposition,
    Oplock,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.harness import SmbHarness, expect
from storagetest.wire.smb2.message import SmbMessage, request

# Durable opens


def durable(tree: Tree, path: str, guid: bytes | None = None, *, timeout: int = 0, **more: Any) -> SmbFile:
    """Open a file durably with a batch oplock, of the second version with ``guid``; skip if not granted."""
    context = c.durable_v1() if guid is None else c.durable_v2(guid, timeout=timeout)
    return only_durable(tree.open(path, oplock=Oplock.BATCH, contexts=[context], **more))


def only_durable(file: SmbFile) -> SmbFile:
    """Return ``file``; skip if it is not durable."""
    if not {c.DURABLE, c.DURABLE_V2} & set(file.contexts):
        pytest.skip("the server grants no durable handle on this share")
    return file


def drop(file: SmbFile) -> SmbFile:
    """Lose the connection of ``file``; return it."""
    file.tree.session.connection.close()
    return file


def again(tree: Tree, file: SmbFile, *contexts: c.CreateContext, oplock: int = Oplock.BATCH) -> SmbMessage:
    """Return the response to a reconnect."""
    return tree.create(file.name, oplock=oplock, contexts=contexts, disposition=Disposition.OPEN)


def reconnected(tree: Tree, file: SmbFile, *contexts: c.CreateContext, oplock: int = Oplock.BATCH) -> SmbFile:
    """Reconnect; a server that has not yet noticed the lost connection refuses at first."""
    got: list[SmbMessage] = []

    def is_back() -> bool:
        got.append(again(tree, file, *contexts, oplock=oplock))
        return got[-1].status == SmbStatus.SUCCESS

    connection = tree.session.connection
    wait_until(is_back, connection.deadline, "the reconnect of a durable handle", error=RemoteProtocolError)
    return SmbFile(tree, file.name, bytes(got[-1]["file_id"]), got[-1])


# Channels


def second_channel(bench: SmbHarness, session: SmbSession, client: bytes, dialect: int) -> SmbSession:
    """Return ``session`` on a second connection, to which it is not bound yet."""
    connection = bench.connect()
    connection.guid = client
    connection.negotiate([dialect])
    return SmbSession(connection, session.account, session.server, channel=replace(session.channel))


def multichannel(bench: SmbHarness, client: bytes, dialect: int = Dialect.SMB_3_1_1) -> Tree:
    """Return a tree of a server with multichannel; skip without."""
    tree = bench.tree([dialect], guid=client)
    if not tree.session.connection.settled.capabilities & Capability.MULTI_CHANNEL:
        pytest.skip("the server has no multichannel")
    return tree


def bind(bench: SmbHarness, tree: Tree, client: bytes, dialect: int = Dialect.SMB_3_1_1) -> Tree:
    """Bind a second connection to the session of ``tree``; return the tree on it."""
    session = second_channel(bench, tree.session, client, dialect)
    session.setup(flags=SESSION_BINDING, sign_setup=True)
    return Tree(session, tree.tree_id, tree.message)


def on(tree: Tree, file: SmbFile) -> SmbFile:
    """Return ``file`` on another channel."""
    return SmbFile(tree, file.name, file.file_id, file.message)


# Credits


def fill(file: SmbFile, data: bytes) -> None:
    """Write ``data`` by requests that a server of any dialect and any MaxWriteSize takes."""
    piece = min(65536, int(file.tree.session.connection.settled.message["max_write"]))
    for at in range(0, len(data), piece):
        expect(file.write(data[at : at + piece], at))


def with_credits(tree: Tree, count: int) -> None:
    """Send ECHOs until the connection has ``count`` credits; skip if the server does not grant them."""
    connection = tree.session.connection
    for _ in range(64):
        if connection.granted >= count:
            return
        expect(tree.call(request(SmbCommand.ECHO), over={"credits": 512}))
    pytest.skip(f"the server grants no {count} credits")
