"""smbd behind a proxy that sends the lease breaks which smbd does not send.

smbd breaks no lease for FSCTL_SET_ZERO_DATA and server-side copies (MS-FSA 2.1.4.12), so a mutant over it has
no rule left to break. The proxy notifies the clients that hold a lease of READ on the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from proxy import Proxy
from smb2_break_mutants import COPIES
from smb2_proxy_connection import SmbMutant, SmbProxyConnection, context_at
from smbd import smbd

from storagetest.wire.smb2.codes import Flags, Fsctl, Lease, SmbCommand
from storagetest.wire.smb2.layout import LEASE_BREAK
from storagetest.wire.smb2.message import NOTIFICATION, SmbMessage, encode
from storagetest.wire.smb2.stream import frame


def _breaks(message: SmbMessage) -> bool:
    """Whether a request changes data in a way for which smbd breaks no lease."""
    changes = (Fsctl.SET_ZERO_DATA, *COPIES)
    return message.command == SmbCommand.IOCTL and message["control_code"] in changes


def _before(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    """Notify the other connections that hold a lease of the file of a request."""
    name = talk.shared.get(message.fields.get("file_id")) if _breaks(message) else None
    for holder, key, version in talk.shared.pop(("leases", name), []):
        data = encode(
            LEASE_BREAK, SmbCommand.OPLOCK_BREAK, b"", header_flags=Flags.RESPONSE, lease_key=key,
            message_id=NOTIFICATION, current_state=Lease.READ, new_state=Lease.NONE, new_epoch=version - 1,
        )  # fmt: skip
        holder.send_to_host(frame(data.data))
    return message.raw


def _after(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    """Note the leases of READ, and the names of the opens."""
    asked = talk.asked.get(message["message_id"])
    if asked is None or message.command != SmbCommand.CREATE or message.is_error:
        return message.raw
    name = talk.shared[message["file_id"]] = asked.buffer
    at = context_at(message, b"RqLs")
    if at and message.raw[at + 16] == Lease.READ:
        size = int.from_bytes(message.raw[at - 12 : at - 8], "little")
        lease = talk, message.raw[at : at + 16], 1 if size == 32 else 2
        talk.shared.setdefault(("leases", name), []).append(lease)
    return message.raw


@contextlib.contextmanager
def mended() -> Iterator[tuple[str, int]]:
    """Run smbd behind a proxy that sends the breaks; yield address and port of the proxy."""
    mender = SmbMutant("mended", "", "", change=_after, request=_before)
    with (
        smbd() as server,
        Proxy(server.address, server.port, lambda _: lambda data: [data], mender.rewrites()) as proxy,
    ):
        yield "127.0.0.1", proxy.port
