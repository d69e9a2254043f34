"""One connection of a test client: message ids, credits, negotiation, and what is checked of every response.

Rules:

1. Each request gets the next message id and a CreditCharge of its size (3.2.4.1.5); ``over`` replaces any
   field of header or body afterwards, whatever that breaks.
2. A response that answers no request, of another command or session, or with a wrong signature raises
   :class:`~storagetest.errors.RemoteProtocolError`.
3. Interim responses and break notifications are kept in ``interim`` and ``notifications``.
4. What else each response has to keep is judged by :class:`SmbRules`; what it breaks is in ``faults``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storagetest.errors import RemoteProtocolError
from storagetest.wire.smb2 import compression, crypto
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.codes import (
    SIGNING_ENABLED,
    SIGNING_REQUIRED,
    Capability,
    Cipher,
    ContextType,
    Dialect,
    Flags,
    Signing,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.layout import Value
from storagetest.wire.smb2.message import NOTIFICATION, SmbEncoded, SmbMessage, request
from storagetest.wire.smb2.replies import SmbRules, notification_faults
from storagetest.wire.smb2.stream import Receiver, frame
from storagetest.wire.tcp import PeerClosed, RecordedConnection, ResponseTimeout

DIALECTS = (Dialect.SMB_2_0_2, Dialect.SMB_2_1, Dialect.SMB_3_0, Dialect.SMB_3_0_2, Dialect.SMB_3_1_1)
"""All dialects, the default offer."""

CIPHERS = (Cipher.AES_128_GCM, Cipher.AES_128_CCM, Cipher.AES_256_GCM, Cipher.AES_256_CCM)
SIGNINGS = (Signing.AES_GMAC, Signing.AES_CMAC, Signing.HMAC_SHA256)
"""The default offers of negotiate contexts, the preferred first."""

CREDITS = 64
"""Credits that each request asks for by default (chosen)."""

CAPABILITIES = (
    Capability.DFS
    | Capability.LEASING
    | Capability.LARGE_MTU
    | Capability.MULTI_CHANNEL
    | Capability.PERSISTENT_HANDLES
    | Capability.DIRECTORY_LEASING
    | Capability.ENCRYPTION
)
"""What the client offers from dialect 3.0 on."""


_NEVER_ENCRYPTED = frozenset(
    command.to_bytes(2, "little") for command in (SmbCommand.NEGOTIATE, SmbCommand.SESSION_SETUP)
)
"""Commands that are encrypted in no session (3.2.4.1.8, 3.3.4.1.4), as they are in the header."""


class DialectRefused(RemoteProtocolError):
    """The server has none of the offered dialects (STATUS_NOT_SUPPORTED, 3.3.5.4)."""


class EncryptionRequired(RemoteProtocolError):
    """The share is refused in a dialect without encryption, and requires encryption (3.3.5.7)."""


class DialectNotOffered(RemoteProtocolError):
    """The server chose a dialect that was not offered, instead of STATUS_NOT_SUPPORTED (3.3.5.4)."""


class GuestSession(RemoteProtocolError):
    """A message is to be signed or encrypted in a session of a guest, which has no key (3.3.5.5.3)."""

    def __init__(self) -> None:
        super().__init__(
            "the server logs the account on as a guest: nothing can be signed or encrypted (3.3.5.5.3)"
        )


@dataclass(slots=True)
class SmbChannel:
    """What a connection knows of a session: id, keys, and whether its messages are signed or encrypted."""

    session_id: int
    keys: crypto.SmbKeys
    algorithm: int
    cipher: int
    signs: bool = False
    encrypts: bool = False
    is_guest: bool = False
    """Whether the user is a guest or anonymous; server and client then share no key."""


@dataclass(frozen=True, slots=True)
class Negotiated:
    """The response to NEGOTIATE (2.2.4), and the numbers chosen in its contexts."""

    message: SmbMessage
    contexts: Mapping[int, bytes]
    cipher: int
    signing: int
    algorithms: tuple[int, ...] = ()
    """The compression algorithms but NONE."""
    chained: bool = False

    @property
    def dialect(self) -> int:
        """The dialect revision."""
        return int(self.message["dialect"])

    @property
    def capabilities(self) -> Capability:
        """The server's capabilities."""
        return Capability(self.message["capabilities"])

    @property
    def requires_signing(self) -> bool:
        """Whether the server requires signatures."""
        return bool(self.message["security_mode"] & SIGNING_REQUIRED)


@dataclass(frozen=True, slots=True)
class _Sent:
    command: int
    charge: int
    signed: bool


def default_contexts(
    ciphers: Sequence[int] = CIPHERS, signings: Sequence[int] = SIGNINGS
) -> tuple[c.NegotiateContext, ...]:
    """Return the negotiate contexts of a client that offers ``ciphers`` and ``signings``."""
    made = [c.preauth(os.urandom(32))]
    made += [c.numbers(ContextType.ENCRYPTION, ciphers)] if ciphers else []
    made += [c.numbers(ContextType.SIGNING, signings)] if signings else []
    return tuple(made)


@dataclass
class SmbConnection:
    """A connection. ``deadline`` is the timeout of one response in seconds."""

    link: RecordedConnection
    deadline: float
    guid: bytes = field(default_factory=lambda: os.urandom(16))
    next_id: int = 0
    granted: int = 1
    """Credits that the server has granted and that are not used (3.2.4.1.2)."""
    preauth: bytes = bytes(64)
    negotiated: Negotiated | None = None
    channels: dict[int, SmbChannel] = field(default_factory=dict)
    interim: dict[int, SmbMessage] = field(default_factory=dict)
    notifications: list[SmbMessage] = field(default_factory=list)
    offered: tuple[int, ...] = ()
    mode: int = SIGNING_ENABLED
    capabilities: int = 0
    asks: int = CREDITS
    """Credits that each request asks for."""
    faults: list[str] = field(default_factory=list)
    """A sentence for each rule that a response has broken (:mod:`storagetest.wire.smb2.replies`)."""

    def __post_init__(self) -> None:
        self._receiver = Receiver(self._decrypting, self._expand)
        self._rules = SmbRules()
        self._compressed: set[int] = set()
        self._responses: dict[int, SmbMessage] = {}
        self._outstanding: dict[int, _Sent] = {}
        self._raw: dict[int, bytes] = {}
        self.last_sent = b""

    @property
    def settled(self) -> Negotiated:
        """What was negotiated."""
        assert self.negotiated is not None, "no dialect is negotiated yet"
        return self.negotiated

    def _decrypting(self, session_id: int) -> tuple[bytes, int] | None:
        channel = self.channels.get(session_id)
        return (channel.keys.decrypt, channel.cipher) if channel and channel.keys.decrypt else None

    def _expand(self, data: bytes) -> bytes:
        """Decompress a response (3.2.5.1.1.2)."""
        names = ("max_read", "max_write", "max_transact")
        largest = 0
        if self.negotiated is not None and self.settled.algorithms:
            largest = 256 + compression.HEADER_SIZE + max(int(self.settled.message[name]) for name in names)
        algorithms = self.settled.algorithms if largest else ()
        return compression.decompress(
            data, algorithms, chained=bool(largest) and self.settled.chained, largest=largest
        )

    # Sending

    def send(
        self,
        *requests: SmbEncoded,
        channel: SmbChannel | None = None,
        tree: int = 0,
        over: Mapping[str, Value] | Sequence[Mapping[str, Value]] = (),
        sign: bool | None = None,
        encrypt: bool | None = None,
        related: bool = False,
        compress: Callable[[bytes], bytes] | None = None,
    ) -> list[int]:
        """Send requests, compounded if there are several; return their message ids.

        ``over`` are overridden fields, for each request if it is a sequence. ``compress`` returns the whole
        message compressed, before it is encrypted (3.1.4.4).
        """
        each = [over] * len(requests) if isinstance(over, Mapping) else list(over) or [{}] * len(requests)
        signs = sign if sign is not None else bool(channel and channel.signs)
        plain = any(encoded.data[12:14] in _NEVER_ENCRYPTED for encoded in requests)
        encrypts = encrypt if encrypt is not None else bool(channel and channel.encrypts and not plain)
        if channel and channel.is_guest and (signs or encrypts):
            raise GuestSession
        ids, parts = [], []
        for number, (encoded, more) in enumerate(zip(requests, each, strict=True)):
            charge = int(more.get("credit_charge", _charge(encoded)))
            has_charges = self.negotiated is None or self.settled.dialect > Dialect.SMB_2_0_2
            flags = int.from_bytes(encoded.data[16:20], "little")
            header: dict[str, Value] = {
                "message_id": self.next_id,
                "credit_charge": charge if self.negotiated and has_charges else 0,
                "credits": self.asks,
                "session_id": channel.session_id if channel else 0,
                "tree_id": tree,
                "header_flags": flags | (Flags.RELATED if related and number else 0),
                **more,
            }
            made = encoded.override(**header)
            last = number + 1 == len(requests)
            data = made.data if last else made.data + bytes(-len(made.data) % 8)
            if not last and "next_command" not in more:
                data = SmbEncoded(data, made.layout).override(next_command=len(data)).data
            if signs and channel and not encrypts:
                data = crypto.sign(data, channel.keys.signing, channel.algorithm)
            if "signature" in more:
                data = SmbEncoded(data, made.layout).override(signature=more["signature"]).data
            mid = int.from_bytes(data[24:32], "little")
            if "message_id" not in more:
                used = max(charge, 1) if has_charges else 1
                self.next_id += used
                self.granted -= used
            command = int.from_bytes(data[12:14], "little")
            if command != SmbCommand.CANCEL:
                self._outstanding[mid] = _Sent(command, charge, signs and not encrypts)
                self._rules.sent(data, related=related and bool(number))
            ids.append(mid)
            parts.append(data)
        whole = b"".join(parts)
        self.last_sent = whole
        whole = compress(whole) if compress else whole
        if encrypts and channel:
            if not channel.keys.encrypt:
                raise RemoteProtocolError(
                    f"SMB2: the server requires encryption (2.2.6, 2.2.10), for which dialect "
                    f"{self.settled.dialect:#x} or a session without a key has no keys (3.3.5.5, 3.3.5.7)"
                )
            nonce = os.urandom(crypto.nonce_size(channel.cipher))
            whole = crypto.encrypt(whole, channel.keys.encrypt, channel.cipher, channel.session_id, nonce)
        self.send_raw(whole)
        return ids

    def send_raw(self, data: bytes) -> None:
        """Send a frame with ``data``."""
        self.link.send(frame(data), deadline=self.deadline)

    def expect_responses(self, *ids: int, command: int) -> None:
        """Take responses to ``ids``, whose requests :meth:`send_raw` sends."""
        for mid in ids:
            self._outstanding[mid] = _Sent(command, charge=1, signed=False)

    def cancel(self, mid: int, *, channel: SmbChannel, tree: int = 0) -> None:
        """Send CANCEL for the request ``mid``, by its async id if it has one (3.2.4.24)."""
        encoded = request(SmbCommand.CANCEL)
        over: dict[str, Value] = {"message_id": mid, "credit_charge": 0, "credits": 0}
        if mid in self.interim:
            over |= {"header_flags": Flags.ASYNC, "async_id": int(self.interim[mid]["async_id"])}
        self.send(encoded, channel=channel, tree=tree, over=over)

    def call(self, encoded: SmbEncoded, **more: Any) -> SmbMessage:
        """Send one request and return its final response."""
        return self.receive(self.send(encoded, **more)[0])

    # Receiving

    def receive(self, mid: int, *, deadline: float | None = None) -> SmbMessage:
        """Return the final response to ``mid``. Raises ResponseTimeout, PeerClosed, RemoteProtocolError."""
        end = time.monotonic() + (self.deadline if deadline is None else deadline)
        while mid not in self._responses:
            self._pump(end)
        return self._responses.pop(mid)

    def receive_interim(self, mid: int) -> SmbMessage | None:
        """Return the interim response to ``mid``; None if the final one came without it."""
        end = time.monotonic() + self.deadline
        while mid not in self._responses and mid not in self.interim:
            self._pump(end)
        return self.interim.get(mid)

    def is_answered(self, mid: int) -> bool:
        """Whether the final response to ``mid`` has been received."""
        return mid in self._responses

    def receive_notification(self, *, deadline: float | None = None) -> SmbMessage:
        """Return the next break notification."""
        end = time.monotonic() + (self.deadline if deadline is None else deadline)
        while not self.notifications:
            self._pump(end)
        return self.notifications.pop(0)

    def closed(self) -> bool:
        """Read until the server closes; return False if it does not within the deadline."""
        end = time.monotonic() + self.deadline
        try:
            while self.link.closed_how is None:
                self._pump(end)
        except PeerClosed:
            return True
        except ResponseTimeout:
            return False
        return True

    def status_of(self, mid: int) -> int:
        """Return the status of the final response to ``mid``, which has been received and is kept."""
        return self._responses[mid].status

    def is_compressed(self, mid: int) -> bool:
        """Whether a response to ``mid`` came compressed."""
        return mid in self._compressed

    def raw_of(self, mid: int) -> bytes:
        """Return the bytes of the last response to ``mid``."""
        return self._raw[mid]

    def _pump(self, end: float) -> None:
        """Take one message, from what was received or from the link."""
        event = self._receiver.next_event()
        while event is None:
            data = self.link.receive(deadline=max(end - time.monotonic(), 0.001))
            if not data:
                raise PeerClosed(f"{self.link.peer}: closed the connection before its response")
            self._receiver.receive_data(data)
            event = self._receiver.next_event()
        if event.compressed:
            self._compressed.add(int(event.message["message_id"]))
        self._take(event.message, event.encrypted)

    def _take(self, message: SmbMessage, encrypted: int | None) -> None:
        mid = int(message["message_id"])
        if not message.is_response:
            raise RemoteProtocolError(f"SMB2: a server sent a request (3.3.4.1): {message.summary()}")
        if mid == NOTIFICATION and message.command == SmbCommand.OPLOCK_BREAK:
            self.notifications.append(message)
            self.faults += notification_faults(message)
            return
        sent = self._outstanding.get(mid)
        if sent is None or sent.command != message.command:
            raise RemoteProtocolError(
                f"SMB2: a response whose message id and command are of no request (3.3.4.1): "
                f"{message.summary()}"
            )
        self._check_protection(message, sent, encrypted)
        self.granted += int(message["credits"])
        self._raw[mid] = message.raw
        if message.is_interim:
            self.interim[mid] = message
            return
        del self._outstanding[mid]
        self.faults += self._rules.faults(message, self.interim.get(mid))
        if sent.charge and not self._outstanding and self.granted < 1 and self.asks:
            self.faults.append("MS-SMB2 3.3.1.2: the client is left without a credit, and nothing is open")
        self._responses[mid] = message

    def _check_protection(self, message: SmbMessage, sent: _Sent, encrypted: int | None) -> None:
        channel = self.channels.get(int(message["session_id"]))
        if channel is None or channel.is_guest or message.is_interim:
            return
        exempt = message.raw[12:14] in _NEVER_ENCRYPTED or message.status == SmbStatus.USER_SESSION_DELETED
        if channel.encrypts and encrypted is None and not exempt:
            raise RemoteProtocolError(
                f"SMB2: a response that is not encrypted, in an encrypted session (3.3.4.1.4): "
                f"{message.summary()}"
            )
        if encrypted is None and sent.signed and not message.flags & Flags.SIGNED:
            if message.status in (SmbStatus.USER_SESSION_DELETED, SmbStatus.ACCESS_DENIED):
                return
            raise RemoteProtocolError(
                f"SMB2: the response to a signed request is not signed (3.3.4.1.1): {message.summary()}"
            )
        if (
            encrypted is None
            and message.flags & Flags.SIGNED
            and not crypto.is_signed_right(message.raw, channel.keys.signing, channel.algorithm)
        ):
            raise RemoteProtocolError(f"SMB2: the signature is wrong (3.1.4.1): {message.summary()}")

    # Negotiation

    def negotiate_request(
        self,
        dialects: Sequence[int] = DIALECTS,
        *,
        contexts: Sequence[c.NegotiateContext] | None = None,
        mode: int = SIGNING_ENABLED,
        capabilities: int = CAPABILITIES,
    ) -> SmbEncoded:
        """Return a NEGOTIATE request (2.2.3); with dialect 3.1.1, it has contexts."""
        tail = b"".join(dialect.to_bytes(2, "little") for dialect in dialects)
        more: dict[str, Value] = {}
        if Dialect.SMB_3_1_1 in dialects:
            made = default_contexts() if contexts is None else contexts
            tail += bytes(-(100 + len(tail)) % 8)
            more = {"context_offset": 100 + len(tail), "context_count": len(made)}
            tail += c.encode_negotiate(made)
        above = max(dialects, default=0) >= Dialect.SMB_2_1
        self.offered, self.mode = tuple(dialects), mode
        self.capabilities = capabilities if max(dialects, default=0) >= Dialect.SMB_3_0 else 0
        return request(
            SmbCommand.NEGOTIATE,
            tail,
            dialect_count=len(dialects),
            security_mode=mode,
            capabilities=self.capabilities,
            client_guid=self.guid if above else bytes(16),
            **more,
        )

    def negotiate(self, dialects: Sequence[int] = DIALECTS, **more: Any) -> Negotiated:
        """Negotiate; a refusal raises :class:`RemoteProtocolError`."""
        message = self.call(self.negotiate_request(dialects, **more))
        return self.settle(message)

    def settle(self, message: SmbMessage) -> Negotiated:
        """Take over what the response to the last NEGOTIATE states."""
        if message.status == SmbStatus.NOT_SUPPORTED:
            raise DialectRefused(f"the server has none of the offered dialects: {message.summary()}")
        if message.status:
            raise RemoteProtocolError(f"SMB2: NEGOTIATE was refused: {message.summary()}")
        dialect = int(message["dialect"])
        if dialect not in self.offered:
            raise DialectNotOffered(
                f"SMB2: the server chose dialect {dialect:#06x}, which was not offered (3.3.5.4): "
                f"{message.summary()}"
            )
        found: dict[int, bytes] = {}
        cipher = Cipher.AES_128_CCM
        signing: int = Signing.HMAC_SHA256 if dialect < Dialect.SMB_3_0 else Signing.AES_CMAC
        if dialect == Dialect.SMB_3_1_1:
            found = c.decode_negotiate(message.raw, message["context_offset"], message["context_count"])
            self.preauth = crypto.next_hash(crypto.next_hash(bytes(64), self.last_sent), message.raw)
            cipher_chosen = c.chosen(found, ContextType.ENCRYPTION)
            cipher = Cipher(cipher_chosen) if cipher_chosen in set(Cipher) else cipher
            signing_chosen = c.chosen(found, ContextType.SIGNING)
            signing = signing if signing_chosen is None else signing_chosen
        compressed = found.get(ContextType.COMPRESSION, bytes(8))
        self.negotiated = Negotiated(message, found, cipher, signing, *c.decode_compression(compressed))
        return self.negotiated

    def close(self) -> None:
        """Close the connection."""
        self.link.close()


def _charge(encoded: SmbEncoded) -> int:
    """Return the CreditCharge of a request: one for each 64 KiB that it sends or asks for (3.1.5.2)."""
    names = ("buffer_length", "length", "output_length", "max_output", "max_input")
    fields = encoded.layout.fields
    most = max((int(fields[name].read(encoded.data)) for name in names if name in fields), default=0)
    return max(1, 1 + (most - 1) // 65536) if most else 1
