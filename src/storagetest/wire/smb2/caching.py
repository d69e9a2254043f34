"""Leases and oplocks of a test client: requests for them, what was granted, and breaks (2.2.13, 2.2.23)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.client import SmbFile, Tree, create_request
from storagetest.wire.smb2.codes import Oplock, SmbCommand
from storagetest.wire.smb2.message import SmbMessage, request
from storagetest.wire.tcp import ResponseTimeout


def open_leased(
    tree: Tree, name: str, key: bytes, state: int, *, version: int = 2, parent: bytes = b"", **more: Any
) -> SmbFile:
    """Open a file and request a lease in the form of ``version``."""
    context = c.lease_v1(key, state) if version == 1 else c.lease_v2(key, state, parent=parent)
    contexts = [context, *more.pop("contexts", ())]
    return tree.open(name, oplock=Oplock.LEASE, contexts=contexts, **more)


def granted(file: SmbFile) -> c.LeaseGrant | None:
    """Return the lease of the CREATE response, or None."""
    data = file.contexts.get(c.LEASE)
    return None if data is None else c.decode_lease(data)


def send_create(tree: Tree, name: str, **more: Any) -> int:
    """Send CREATE without waiting for its response; return its message id."""
    return tree.send(create_request(name, **more))[0]


def is_held(tree: Tree, mid: int) -> bool:
    """Whether ``mid`` has an interim response and no final one before that to a later ECHO."""
    connection = tree.session.connection
    with suppress(ResponseTimeout):  # an interim response is the server's choice (3.3.4.2)
        if connection.receive_interim(mid) is None:
            return False
    tree.call(request(SmbCommand.ECHO))
    return not connection.is_answered(mid)


def next_break(tree: Tree, **more: Any) -> SmbMessage:
    """Return the next break notification on the connection of ``tree``."""
    return tree.session.connection.receive_notification(**more)


def has_break(tree: Tree) -> bool:
    """Whether a break notification has arrived before the response to an ECHO that is sent now."""
    tree.call(request(SmbCommand.ECHO))
    return bool(tree.session.connection.notifications)
