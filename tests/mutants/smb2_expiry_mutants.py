"""Broken rules of sessions that expire, over smbd with Kerberos."""

from smb2_proxy_connection import Change, SmbMutant, SmbProxyConnection

from storagetest.wire.smb2.codes import SmbCommand, SmbStatus
from storagetest.wire.smb2.message import SmbMessage, response

MUTANTS: dict[str, SmbMutant] = {}
EXPIRED = SmbStatus.NETWORK_SESSION_EXPIRED
KEPT = ("credit_charge", "credits", "message_id", "session_id")


def _mutant(name: str, section: str, description: str, change: Change) -> None:
    MUTANTS[name] = SmbMutant(name, f"MS-SMB2 {section}", description, change=change, protected=True)


def _with_status(message: SmbMessage, status: SmbStatus) -> bytes:
    """Return an error response in place of ``message``."""
    kept = {key: message.header[key] for key in KEPT}
    return response(SmbCommand(message.command), status=status).override(**kept).data


def executed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.READ or message.status != EXPIRED:
        return message.raw
    return message.encoded().override(status=SmbStatus.END_OF_FILE).data


def status_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.status != EXPIRED:
        return message.raw
    return message.encoded().override(status=SmbStatus.ACCESS_DENIED).data


def refuses_all(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    """Refuse what an expired session still may do."""
    talk.shared["ended"] = talk.shared.get("ended") or message.status == EXPIRED
    allowed = (SmbCommand.CLOSE, SmbCommand.LOCK, SmbCommand.LOGOFF)
    refused = talk.shared["ended"] and message.command in allowed and not message.status
    return _with_status(message, EXPIRED) if refused else message.raw


def stays(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    """Refuse all but a set-up from the first refusal on."""
    talk.shared["ended"] = talk.shared.get("ended") or message.status == EXPIRED
    refused = talk.shared["ended"] and message.command == SmbCommand.WRITE
    return _with_status(message, EXPIRED) if refused else message.raw


_mutant("expired-executed", "3.3.5.2.9", "a READ of an expired session is executed", executed)
_mutant("expired-status-other", "3.3.5.2.9", "a session that expired has another status", status_other)
_mutant(
    "expired-refuses-all", "3.3.5.2.9", "an expired session neither closes, unlocks nor ends", refuses_all
)
_mutant("expired-stays", "3.3.5.5.2", "a session stays expired after it is authenticated again", stays)
