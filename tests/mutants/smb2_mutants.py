"""Broken rules of SMB 2 and 3: what a proxy over smbd changes in responses and requests."""

from collections.abc import Callable

from smb2_proxy_connection import (
    MUTANTS,
    SmbProxyConnection,
    accepts,
    mutant,
    negotiate_context_at,
    other_status,
    put,
    same,
    sets,
)

from storagetest.wire.smb2.codes import ContextType, Flags, SmbCommand, SmbStatus
from storagetest.wire.smb2.message import SmbMessage, response

SESSION_IS_GUEST = 1
"""SMB2_SESSION_FLAG_IS_GUEST (2.2.6)."""

TRIED = {
    SmbCommand.NEGOTIATE: "3.3.5.4",
    SmbCommand.TREE_CONNECT: "3.3.5.7",
    SmbCommand.CREATE: "3.3.5.9",
    SmbCommand.CLOSE: "3.3.5.10",
    SmbCommand.FLUSH: "3.3.5.11",
    SmbCommand.READ: "3.3.5.12",
    SmbCommand.WRITE: "3.3.5.13",
    SmbCommand.LOCK: "3.3.5.14",
    SmbCommand.IOCTL: "3.3.5.15",
    SmbCommand.QUERY_DIRECTORY: "3.3.5.18",
    SmbCommand.CHANGE_NOTIFY: "3.3.5.19",
    SmbCommand.QUERY_INFO: "3.3.5.20",
    SmbCommand.SET_INFO: "3.3.5.21",
    SmbCommand.OPLOCK_BREAK: "3.3.5.22",
}


for _command, _section in TRIED.items():
    _name = _command.name.lower().replace("_", "-")
    accepts(f"accepts-{_name}", _command, _section)
    if _command not in (SmbCommand.CHANGE_NOTIFY, SmbCommand.IOCTL):
        other_status(f"status-{_name}", _command, _section)
accepts("accepts-session-setup", SmbCommand.SESSION_SETUP, "3.3.5.5")
other_status("status-session-setup", SmbCommand.SESSION_SETUP, "3.3.5.5")

sets(
    "dialect-other | MS-SMB2 3.3.5.4 | the response names a dialect that was not offered",
    SmbCommand.NEGOTIATE,
    dialect=0x0305,
)
sets(
    "max-sizes-zero | MS-SMB2 2.2.4 | the largest sizes are 0",
    SmbCommand.NEGOTIATE,
    max_read=0,
    max_write=0,
    max_transact=0,
)
sets(
    "capabilities-of-3-in-2 | MS-SMB2 3.3.5.4 | a server of 2.0.2 has encryption",
    SmbCommand.NEGOTIATE,
    capabilities=0x47,
)
sets("security-mode-zero | MS-SMB2 3.3.5.4 | signing is not enabled", SmbCommand.NEGOTIATE, security_mode=0)
sets(
    "downgrade | MS-SMB2 3.3.5.15.12 | capabilities are removed on the way",
    SmbCommand.NEGOTIATE,
    capabilities=0,
)
sets(
    "create-action-other | MS-SMB2 2.2.14 | CreateAction is another",
    SmbCommand.CREATE,
    action=lambda message: message["action"] ^ 1,
)
sets(
    "create-size-other | MS-SMB2 2.2.14 | EndofFile is another",
    SmbCommand.CREATE,
    end_of_file=lambda message: message["end_of_file"] + 1,
)
sets(
    "file-id-same | MS-SMB2 3.3.5.9 | every open has the same FileId", SmbCommand.CREATE, file_id=b"\x11" * 16
)
sets("close-size-other | MS-SMB2 3.3.5.10 | CLOSE returns another EndofFile", SmbCommand.CLOSE, end_of_file=5)
sets(
    "write-count-other | MS-SMB2 3.3.5.13 | Count of a WRITE is another",
    SmbCommand.WRITE,
    count=lambda message: message["count"] - 1,
)
sets(
    "read-short | MS-SMB2 3.3.5.12 | READ returns a byte less",
    SmbCommand.READ,
    buffer_length=lambda message: message["buffer_length"] - 1,
)


@mutant("server-guid-changes | MS-SMB2 3.3.5.4 | the server's GUID differs on every connection")
def server_guid_changes(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.NEGOTIATE or message.is_error:
        return message.raw
    talk.shared["count"] = talk.shared.get("count", 0) + 1
    return message.encoded().override(server_guid=bytes([talk.shared["count"]]) * 16).data


def _context_other(row: str, kind: ContextType, at: int, value: int) -> None:
    @mutant(row)
    def change(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
        where = negotiate_context_at(message, kind)
        return put(message.raw, where + at, value.to_bytes(2, "little")) if where else message.raw


_context_other(
    "preauth-hash-other | MS-SMB2 2.2.4.1.1 | the hash was not offered", ContextType.PREAUTH_INTEGRITY, 4, 9
)
_context_other("cipher-other | MS-SMB2 2.2.4.1.2 | the cipher was not offered", ContextType.ENCRYPTION, 2, 9)
_context_other(
    "signing-other | MS-SMB2 2.2.4.1.7 | the signing algorithm was not offered", ContextType.SIGNING, 2, 9
)


@mutant("status-success-lost | MS-SMB2 3.3.4.3 | what succeeds is refused")
def status_success_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.status or message.command in (SmbCommand.SESSION_SETUP, SmbCommand.ECHO):
        return message.raw
    keys = ("credit_charge", "credits", "message_id", "session_id", "next_command")
    kept = {key: message.header[key] for key in keys}
    made = response(SmbCommand(message.command), status=SmbStatus.ACCESS_DENIED).override(**kept).data
    step = message.header["next_command"]
    return made.ljust(step, b"\0") if step > len(made) else made if not step else message.raw


@mutant(
    "setup-signature-spoiled | MS-SMB2 3.3.5.5.3 | the last SESSION_SETUP response has a wrong signature",
    protected=True,
)
def setup_signature_spoiled(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.SESSION_SETUP or message.status:
        return message.raw
    return message.encoded().override(signature=b"\x66" * 16).data


@mutant("setup-token-zeroed | MS-SMB2 2.2.6 | the first token of the server is zeros")
def setup_token_zeroed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.SESSION_SETUP or not message.status or not message.buffer:
        return message.raw
    return message.raw.replace(message.buffer, bytes(len(message.buffer)))


@mutant(
    "guest-flag-always | MS-SMB2 3.3.5.5.3 | every session is stated to be that of a guest", protected=True
)
def guest_flag_always(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.SESSION_SETUP or message.status:
        return message.raw
    return message.encoded().override(session_flags=message["session_flags"] | SESSION_IS_GUEST).data


@mutant("signature-spoiled | MS-SMB2 3.1.4.1 | signatures are wrong after the log-on", protected=True)
def signature_spoiled(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.ECHO or not message.flags & Flags.SIGNED:
        return message.raw
    return message.encoded().override(signature=b"\x66" * 16).data


@mutant("signature-lost | MS-SMB2 3.3.4.1.1 | the response to a signed request is not signed", protected=True)
def signature_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.ECHO or not message.flags & Flags.SIGNED:
        return message.raw
    return (
        message.encoded().override(signature=bytes(16), header_flags=int(message.flags & ~Flags.SIGNED)).data
    )


mutant("encryption-spoiled | MS-SMB2 3.1.4.3 | an encrypted response is not authentic", encrypted=True)(same)
mutant("close-hidden | MS-SMB2 3.3.5 | the connection stays open where it ends", keeps_open=True)(same)


@mutant("credits-zero | MS-SMB2 3.3.1.2 | a response grants no credit")
def credits_zero(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command in (SmbCommand.NEGOTIATE, SmbCommand.SESSION_SETUP):
        return message.raw  # else the hash of pre-authentication integrity is another
    return message.encoded().override(credits=0).data


sets(
    "credits-zero-negotiate | MS-SMB2 3.3.1.2 | the response to NEGOTIATE grants no credit",
    SmbCommand.NEGOTIATE,
    credits=0,
)


@mutant("message-id-other | MS-SMB2 3.3.4.1 | an ECHO's response has another MessageId")
def message_id_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.ECHO:
        return message.raw
    return message.encoded().override(message_id=message["message_id"] + 1000).data


@mutant("command-other | MS-SMB2 3.3.4.1 | an ECHO's response has another Command")
def command_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.ECHO:
        return message.raw
    return message.encoded().override(command=int(SmbCommand.FLUSH)).data


@mutant("read-data-changed | MS-SMB2 3.3.5.12 | READ returns other data")
def read_data_changed(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.READ or message.status:
        return message.raw
    at = message["buffer_offset"]
    return message.raw[:at] + bytes([message.raw[at] ^ 0xFF]) + message.raw[at + 1 :]


def _in_contexts(message: SmbMessage, name: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Change the data that follow a create context's name."""
    at = message.raw.find(name, 64)
    if message.command != SmbCommand.CREATE or message.status or at < 0:
        return message.raw
    data = at + 8
    return message.raw[:data] + change(message.raw[data : data + 8]) + message.raw[data + 8 :]


@mutant("maximal-access-lost | MS-SMB2 3.3.5.9.5 | the maximal access is 0")
def maximal_access_lost(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    return _in_contexts(message, b"MxAc", lambda data: bytes(8))


@mutant("disk-id-changes | MS-SMB2 3.3.5.9.9 | the on-disk id differs each time")
def disk_id_changes(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    talk.shared["count"] = talk.shared.get("count", 0) + 1
    return _in_contexts(message, b"QFid", lambda data: bytes([talk.shared["count"]]) * 8)


@mutant("copy-count-other | MS-SMB2 3.3.5.15.6 | a server-side copy states another count")
def copy_count_other(talk: SmbProxyConnection, message: SmbMessage) -> bytes:
    if message.command != SmbCommand.IOCTL or message.status or len(message.buffer) != 12:
        return message.raw
    at = message["buffer_offset"] + 8
    return message.raw[:at] + b"\x04" + message.raw[at + 1 :]


# They register theirs in the same table.
import smb2_after_mutants  # noqa: E402
import smb2_agreed_mutants  # noqa: E402
import smb2_break_mutants  # noqa: E402
import smb2_caching_mutants  # noqa: E402
import smb2_data_mutants  # noqa: E402
import smb2_far_mutants  # noqa: E402
import smb2_fresh_mutants  # noqa: E402
import smb2_granted_mutants  # noqa: E402
import smb2_kit_mutants  # noqa: E402
import smb2_listed_mutants  # noqa: E402
import smb2_model_mutants  # noqa: E402
import smb2_neighbour_mutants  # noqa: E402
import smb2_open_mutants  # noqa: E402
import smb2_pipe_mutants  # noqa: E402
import smb2_posix_mutants  # noqa: E402
import smb2_reported_mutants  # noqa: E402
import smb2_second_mutants  # noqa: E402
import smb2_sequence_mutants  # noqa: E402
import smb2_share_mutants  # noqa: E402
import smb2_state_mutants  # noqa: E402
import smb2_stated_mutants  # noqa: E402
import smb2_unseen_mutants  # noqa: E402

__all__ = [
    "MUTANTS",
    "smb2_after_mutants",
    "smb2_agreed_mutants",
    "smb2_break_mutants",
    "smb2_caching_mutants",
    "smb2_data_mutants",
    "smb2_far_mutants",
    "smb2_fresh_mutants",
    "smb2_granted_mutants",
    "smb2_kit_mutants",
    "smb2_listed_mutants",
    "smb2_model_mutants",
    "smb2_neighbour_mutants",
    "smb2_open_mutants",
    "smb2_pipe_mutants",
    "smb2_posix_mutants",
    "smb2_reported_mutants",
    "smb2_second_mutants",
    "smb2_sequence_mutants",
    "smb2_share_mutants",
    "smb2_state_mutants",
    "smb2_stated_mutants",
    "smb2_unseen_mutants",
]
