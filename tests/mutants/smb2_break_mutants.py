"""Lease breaks that smbd itself does not send: broken on a server that sends them (:mod:`smb2_mended`)."""

from smb2_proxy_connection import SmbProxyConnection, mutant

from storagetest.wire.smb2.codes import Fsctl, SmbCommand
from storagetest.wire.smb2.message import SmbMessage

MENDED = "mended"
"""The kind of target: smbd behind a proxy that sends the breaks."""

COPIES = (Fsctl.SRV_COPYCHUNK, Fsctl.SRV_COPYCHUNK_WRITE)
"""The control codes of server-side copies."""


def _break_lost(name: str, what: str, section: str, *codes: Fsctl) -> None:
    def ask(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        if message.command == SmbCommand.IOCTL and message["control_code"] in codes:
            talk.shared["changed"] = True
        return message.raw

    @mutant(f"{name} | {section} | {what} breaks no lease", kind=MENDED, request=ask)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes | None:
        return None if message.is_lease_break and "changed" in talk.shared else message.raw


_break_lost("lease-break-zero-lost", "FSCTL_SET_ZERO_DATA", "MS-FSA 2.1.4.12", Fsctl.SET_ZERO_DATA)
_break_lost("lease-break-copy-lost", "a server-side copy", "MS-FSA 2.1.4.12", *COPIES)
