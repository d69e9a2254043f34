"""Ends of a login, of a wait and of a connection that a case may expect."""

from __future__ import annotations

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.codes import LoginStatus
from storagetest.wire.tcp import PeerClosed


class LoginRefused(RemoteProtocolError):  # what happened, in the case's words
    """The target answered a login with a status that is not Success; ``status`` is class and detail.

    ``moved_to`` is the TargetAddress of a redirection (RFC 7143 11.13.5), or empty.
    """

    def __init__(self, status: int, peer: str, moved_to: str = "") -> None:
        names = {int(known): known.name for known in LoginStatus}
        moved = f", TargetAddress {moved_to}" if moved_to else ""
        super().__init__(
            f"{peer}: login refused: status {status:04x} ({names.get(status, 'unknown')}{moved})"
        )
        self.status = status
        self.moved_to = moved_to


class ResponseOverdue(RemoteProtocolError):  # what happened, in the case's words
    """PDUs came, but not the response that was due before the deadline."""


class AnnouncedClose(PeerClosed):  # what happened, in the case's words
    """The target closed after an Asynchronous Message that announced it: legal, and no case can go on."""
