"""The portal of an iSCSI target, as this machine connects to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.login import Credentials
from storagetest.wire.scsi.logical_unit import LogicalUnit

DEADLINE = 10.0
"""Timeout of one response in seconds, or the target's `deadline` if that is less (chosen)."""


NAME = "iqn.2024-01.org.storagetest:"
"""The beginning of every initiator name of the cases."""

FACTS = f"{NAME}facts"
"""The initiator name of the first look."""

REDIRECTIONS = 4
"""The most redirections that are followed (chosen)."""


@dataclass(frozen=True, slots=True)
class Portal:
    """Address, name and credentials of the target."""

    address: str
    port: int
    iqn: str
    lun: int
    deadline: float
    credentials: Credentials | None
    erase: str | None

    @classmethod
    def of(cls, options: Any) -> Portal:  # the options of the protocol's own class
        """Return the portal that the options of a target name."""
        chap = options.chap
        credentials = None
        if chap is not None:
            mutual = chap.mutual
            credentials = Credentials(
                chap.username,
                chap.password.reveal().encode(),
                mutual.username if mutual else "",
                mutual.password.reveal().encode() if mutual else b"",
            )
        address, port = options.wire_endpoint(options.address, options.port)
        deadline = min(DEADLINE, options.deadline)
        return cls(address, port, options.iqn, options.lun, deadline, credentials, options.erase)


def responds(initiator: Initiator) -> bool:
    """Whether the session is logged in and completes a command."""
    if not initiator.logged_in:
        return False
    try:
        LogicalUnit(initiator).test_unit_ready()
    except RemoteProtocolError:
        return False
    return True
