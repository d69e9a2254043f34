"""A test client: sessions with NTLM or Kerberos by pyspnego, trees, and open files."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import spnego
from spnego.exceptions import ContextExpiredError, CredentialsExpiredError, SpnegoError

from storagetest.errors import AttachError, RemoteProtocolError
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2 import crypto, kerberos
from storagetest.wire.smb2.codes import (
    NO_FILE,
    SESSION_ENCRYPT_DATA,
    SESSION_IS_ANONYMOUS_OR_DEFAULT,
    SHARE_ENCRYPT_DATA,
    SIGNING_ENABLED,
    Access,
    Dialect,
    Disposition,
    FileInfo,
    Flags,
    Fsctl,
    InfoType,
    Oplock,
    Options,
    SmbCommand,
    SmbShare,
    SmbStatus,
)
from storagetest.wire.smb2.connection import GuestSession, SmbChannel, SmbConnection
from storagetest.wire.smb2.layout import LEASE_ACK
from storagetest.wire.smb2.message import SmbEncoded, SmbMessage, encode, request

READ_WRITE = Access.GENERIC_READ | Access.GENERIC_WRITE | Access.DELETE

UNREADABLE_TOKEN = (ValueError, LookupError, TypeError, AttributeError, struct.error)
"""What pyspnego raises besides its own errors for a token that it cannot decode."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the server; ``kerberos`` is the host of the server's principal, None for NTLM."""

    username: str
    password: str
    domain: str | None = None
    kerberos: str | None = None

    @property
    def principal(self) -> str:
        """The Kerberos principal; without a domain, of the default realm."""
        return f"{self.username}@{self.domain}" if self.domain else self.username


def security_context(account: Account, server: str) -> spnego.ContextProxy:
    """Return a security context for Kerberos, or for NTLM within SPNEGO (MS-SMB2 3.2.4.2.3)."""
    if account.kerberos:
        return kerberos.context(account.principal, account.password, account.kerberos)
    name = f"{account.domain}\\{account.username}" if account.domain else account.username
    return spnego.client(
        name,
        account.password,
        hostname=server,
        service="cifs",
        protocol="negotiate",
        options=spnego.NegotiateOptions.use_ntlm,
    )


def next_token(context: spnego.ContextProxy, received: bytes) -> bytes | None:
    """Return the client's answer to the server's token (MS-SMB2 3.2.5.3).

    Raises AttachError if the client's own tickets have ended meanwhile, and RemoteProtocolError if the token
    is none of the mechanism, or its integrity code is wrong (RFC 4178 5).
    """
    try:
        return context.step(received)
    except (ContextExpiredError, CredentialsExpiredError) as error:
        raise AttachError(f"the account's tickets ended while the session was set up: {error}") from None
    except (SpnegoError, *UNREADABLE_TOKEN) as error:
        raise RemoteProtocolError(
            f"SMB2: the token of a SESSION_SETUP response ({len(received)} B) is refused by the client's "
            f"mechanism (MS-SMB2 3.2.5.3): {type(error).__name__}: {error}"
        ) from error


@dataclass
class SmbSession:
    """A session on one connection. Raises AttachError if the server refuses the account."""

    connection: SmbConnection
    account: Account
    server: str
    channel: SmbChannel = field(default_factory=lambda: SmbChannel(0, crypto.SmbKeys(b""), 0, 0))
    final: SmbMessage | None = None
    session_key: bytes = b""

    def setup(
        self,
        *,
        mode: int = SIGNING_ENABLED,
        signs: bool = False,
        encrypts: bool = False,
        flags: int = 0,
        previous: int = 0,
        sign_setup: bool = False,
        over: dict[str, Any] | None = None,
    ) -> SmbSession:
        """Authenticate (3.2.4.2.3); again in a session that has an id, it is a re-authentication.

        Raises GuestSession if a session that signs or encrypts is that of a guest.
        """
        message = self.attempt(mode=mode, flags=flags, previous=previous, sign=sign_setup, over=over)
        if message.status:
            raise AttachError(
                f"{self.server} refuses the user {self.account.username!r}: "
                f"{SmbStatus.name_of(message.status)}"
            )
        if self.channel.is_guest and (signs or encrypts):
            raise GuestSession
        settled = self.connection.settled
        required = settled.requires_signing and not self.channel.is_guest  # 3.3.5.5.3: not of a guest
        self.channel.signs = signs or required or self.channel.signs
        sealed = bool(message["session_flags"] & SESSION_ENCRYPT_DATA)
        self.channel.encrypts = encrypts or sealed or self.channel.encrypts
        return self

    def attempt(
        self,
        *,
        mode: int = SIGNING_ENABLED,
        flags: int = 0,
        previous: int = 0,
        sign: bool = False,
        over: dict[str, Any] | None = None,
    ) -> SmbMessage:
        """Authenticate, and return the final response, whatever its status."""
        connection, context = self.connection, security_context(self.account, self.server)
        again = bool(self.channel.session_id) and not flags
        preauth = connection.preauth
        token = context.step()
        while True:
            encoded = request(
                SmbCommand.SESSION_SETUP,
                token or b"",
                flags=flags,
                security_mode=mode,
                previous_session=previous,
            )
            message = connection.call(
                encoded, channel=self.channel, sign=sign or (again and self.channel.signs), over=over or {}
            )
            preauth = crypto.next_hash(preauth, connection.last_sent)
            self.channel.session_id = int(message["session_id"])
            if message.status == SmbStatus.MORE_PROCESSING_REQUIRED:
                preauth = crypto.next_hash(preauth, message.raw)
                token = next_token(context, message.buffer)
                continue
            if message.status:
                return message
            if message.buffer and not context.complete:
                next_token(context, message.buffer)
            break
        self.final = message
        if not again:
            self._take_keys(context.session_key, preauth, message, bound=bool(flags))
        return message

    def _take_keys(self, key: bytes, preauth: bytes, message: SmbMessage, *, bound: bool) -> None:
        """Derive the keys of a session that is not a guest's, and check the signature of the last response.

        The server MUST sign it in dialect 3.1.1, unless the user is a guest or anonymous (3.3.5.5.3). A
        client refuses that (3.2.5.3.1); this one goes on, because the rest of the server can be tested.
        """
        settled = self.connection.settled
        if message["session_flags"] & SESSION_IS_ANONYMOUS_OR_DEFAULT:
            self.channel.is_guest = True
            self.connection.channels[self.channel.session_id] = self.channel
            return
        self.session_key = key
        self.channel.algorithm, self.channel.cipher = settled.signing, settled.cipher
        own = crypto.session_keys(key, settled.dialect, preauth, settled.cipher)
        kept = self.channel.keys
        self.channel.keys = crypto.SmbKeys(own.signing, kept.encrypt, kept.decrypt) if bound else own
        self.connection.channels[self.channel.session_id] = self.channel
        must = settled.dialect == Dialect.SMB_3_1_1
        if must and not message.flags & Flags.SIGNED:
            raise RemoteProtocolError(
                f"SMB2: the last SESSION_SETUP response of dialect 3.1.1 is not signed (3.3.5.5.3): "
                f"{message.summary()}"
            )
        if message.flags & Flags.SIGNED and not crypto.is_signed_right(
            message.raw, self.channel.keys.signing, settled.signing
        ):
            raise RemoteProtocolError(
                f"SMB2: the signature of the last SESSION_SETUP response is wrong (3.3.5.5.3): "
                f"{message.summary()}"
            )

    def call(self, encoded: SmbEncoded, **more: Any) -> SmbMessage:
        """Send a request of this session and return its final response."""
        return self.connection.call(encoded, channel=self.channel, **more)

    def connect_tree(self, share: str, **more: Any) -> SmbMessage:
        """Return the response to TREE_CONNECT; signed in 3.1.1, but for a guest (3.2.4.2.4, 3.3.5.7)."""
        path = f"\\\\{self.server}\\{share}".encode("utf-16-le")
        must = self.connection.settled.dialect == Dialect.SMB_3_1_1 and not self.channel.is_guest
        more.setdefault("sign", must or None)
        return self.call(request(SmbCommand.TREE_CONNECT, path), **more)

    def tree(self, share: str) -> Tree:
        """Connect to a share. Raises AttachError if it is refused."""
        message = self.connect_tree(share)
        if message.status:
            raise AttachError(
                f"{self.server} refuses the share {share!r}: {SmbStatus.name_of(message.status)}"
            )
        if message["share_flags"] & SHARE_ENCRYPT_DATA:
            self.channel.encrypts = True
        return Tree(self, int(message["tree_id"]), message)

    def logoff(self, **more: Any) -> SmbMessage:
        """Return the response to LOGOFF."""
        return self.call(request(SmbCommand.LOGOFF), **more)


def create_request(
    name: str,
    *,
    access: int = READ_WRITE,
    share: int = SmbShare.ALL,
    disposition: int = Disposition.OPEN_IF,
    options: int = Options.NON_DIRECTORY_FILE,
    attributes: int = 0,
    oplock: int = Oplock.NONE,
    contexts: Sequence[c.CreateContext] = (),
) -> SmbEncoded:
    """Return a CREATE request (2.2.13) for ``name``, relative to the share."""
    path = name.encode("utf-16-le", "surrogatepass")
    start = 120
    tail = path or b"\0\0"
    where, length = 0, 0
    if contexts:
        tail += bytes(-len(tail) % 8)
        body = c.encode_create(contexts)
        where, length = start + len(tail), len(body)
        tail += body
    return request(
        SmbCommand.CREATE,
        tail,
        access=access,
        share=share,
        disposition=disposition,
        options=options,
        attributes=attributes,
        oplock=oplock,
        impersonation=2,
        buffer_offset=start,
        buffer_length=len(path),
        context_offset=where,
        context_length=length,
    )


@dataclass
class Tree:
    """A tree connect."""

    session: SmbSession
    tree_id: int
    message: SmbMessage

    def call(self, encoded: SmbEncoded, **more: Any) -> SmbMessage:
        """Send a request in this tree and return its final response."""
        more.setdefault("tree", self.tree_id)
        return self.session.call(encoded, **more)

    def send(self, *encoded: SmbEncoded, **more: Any) -> list[int]:
        """Send requests in this tree; return their message ids."""
        more.setdefault("tree", self.tree_id)
        return self.session.connection.send(*encoded, channel=self.session.channel, **more)

    def receive(self, mid: int, **more: Any) -> SmbMessage:
        """Return the final response to ``mid``."""
        return self.session.connection.receive(mid, **more)

    def create(self, name: str, *, over: dict[str, Any] | None = None, **more: Any) -> SmbMessage:
        """Return the response to CREATE."""
        return self.call(create_request(name, **more), over=over or {})

    def open(self, name: str, **more: Any) -> SmbFile:
        """Open a file. An error status is a failed claim of the case."""
        message = self.create(name, **more)
        assert message.status == SmbStatus.SUCCESS, (
            f"CREATE of {name!r} ends in {SmbStatus.name_of(message.status)}"
        )
        return SmbFile(self, name, bytes(message["file_id"]), message)

    def disconnect(self) -> SmbMessage:
        """Return the response to TREE_DISCONNECT."""
        return self.call(request(SmbCommand.TREE_DISCONNECT))


@dataclass
class SmbFile:
    """An open file or directory."""

    tree: Tree
    name: str
    file_id: bytes
    message: SmbMessage

    @property
    def contexts(self) -> dict[bytes, bytes]:
        """The create contexts of the response."""
        return c.decode_create(self.message.second)

    def call(
        self,
        command: SmbCommand,
        tail: bytes = b"",
        *,
        over: Any = (),
        compress: Callable[[bytes], bytes] | None = None,
        **fields: Any,
    ) -> SmbMessage:
        """Send a request on this open and return its final response."""
        fields.setdefault("file_id", self.file_id)
        return self.tree.call(request(command, tail, **fields), over=over or {}, compress=compress)

    def close(self, **more: Any) -> SmbMessage:
        """Return the response to CLOSE."""
        return self.call(SmbCommand.CLOSE, **more)

    def read(self, length: int, offset: int = 0, **more: Any) -> SmbMessage:
        """Return the response to READ."""
        return self.call(SmbCommand.READ, length=length, offset=offset, padding=80, **more)

    def write(self, data: bytes, offset: int = 0, **more: Any) -> SmbMessage:
        """Return the response to WRITE."""
        return self.call(SmbCommand.WRITE, data, offset=offset, **more)

    def flush(self, **more: Any) -> SmbMessage:
        """Return the response to FLUSH."""
        return self.call(SmbCommand.FLUSH, **more)

    def query(
        self,
        info_class: int,
        *,
        kind: int = InfoType.FILE,
        length: int = 65536,
        additional: int = 0,
        tail: bytes = b"",
        **more: Any,
    ) -> SmbMessage:
        """Return the response to QUERY_INFO."""
        return self.call(
            SmbCommand.QUERY_INFO,
            tail,
            info_type=kind,
            info_class=info_class,
            output_length=length,
            additional=additional,
            **more,
        )

    def set(
        self, info_class: int, data: bytes, *, kind: int = InfoType.FILE, additional: int = 0, **more: Any
    ) -> SmbMessage:
        """Return the response to SET_INFO."""
        return self.call(
            SmbCommand.SET_INFO, data, info_type=kind, info_class=info_class, additional=additional, **more
        )

    def rename(self, path: str, *, replace: bool = False) -> SmbMessage:
        """Return the response to a rename (MS-FSCC 2.4.41.2); ``path`` is relative to the share."""
        name = path.encode("utf-16-le")
        data = struct.pack("<B7xQI", replace, 0, len(name)) + name
        return self.set(FileInfo.RENAME, data.ljust(24, b"\0"))

    def set_size(self, size: int) -> SmbMessage:
        """Return the response to setting the end of file (MS-FSCC 2.4.14)."""
        return self.set(FileInfo.END_OF_FILE, struct.pack("<Q", size))

    def delete_on_close(self, *, pending: bool = True) -> SmbMessage:
        """Return the response to setting the disposition (MS-FSCC 2.4.11)."""
        return self.set(FileInfo.DISPOSITION, bytes([pending]))

    def list(
        self,
        info_class: int = FileInfo.ID_BOTH_DIRECTORY,
        pattern: str = "*",
        *,
        flags: int = 0,
        length: int = 65536,
        **more: Any,
    ) -> SmbMessage:
        """Return the response to QUERY_DIRECTORY."""
        encoded = request(
            SmbCommand.QUERY_DIRECTORY,
            pattern.encode("utf-16-le"),
            info_class=info_class,
            output_length=length,
            flags=flags,
            file_id=self.file_id,
        )
        return self.tree.call(encoded, **more)

    def ioctl(
        self, code: int, data: bytes = b"", *, max_output: int = 65536, flags: int = 1, **more: Any
    ) -> SmbMessage:
        """Return the response to IOCTL; by default an FSCTL (2.2.31)."""
        return self.tree.call(
            ioctl_request(self.file_id, code, data, max_output=max_output, flags=flags), **more
        )

    def lock_request(self, *elements: tuple[int, int, int], sequence: int = 0) -> SmbEncoded:
        """Return a LOCK request of elements (offset, length, flags) (2.2.26)."""
        tail = b"".join(struct.pack("<QQI4x", *element) for element in elements)
        return request(
            SmbCommand.LOCK, tail, lock_count=len(elements), lock_sequence=sequence, file_id=self.file_id
        )

    def lock(self, *elements: tuple[int, int, int], sequence: int = 0, **more: Any) -> SmbMessage:
        """Return the response to LOCK."""
        return self.tree.call(self.lock_request(*elements, sequence=sequence), **more)

    def acknowledge_oplock(self, level: int) -> SmbMessage:
        """Return the response to an oplock break acknowledgement (2.2.24.1)."""
        return self.call(SmbCommand.OPLOCK_BREAK, oplock=level)


def ioctl_request(
    file_id: bytes, code: int, data: bytes = b"", *, max_output: int = 65536, flags: int = 1
) -> SmbEncoded:
    """Return an IOCTL request (2.2.31)."""
    return request(
        SmbCommand.IOCTL,
        data,
        control_code=code,
        file_id=file_id,
        max_output=max_output,
        buffer_offset=120,
        flags=flags,
    )


def acknowledge_lease(tree: Tree, key: bytes, state: int) -> SmbMessage:
    """Return the response to a lease break acknowledgement (2.2.24.2)."""
    encoded = encode(
        LEASE_ACK, SmbCommand.OPLOCK_BREAK, b"", header_flags=0, lease_key=key, lease_state=state
    )
    return tree.call(encoded)


def validate_negotiate(tree: Tree, **lie: Any) -> SmbMessage:
    """Return the response to VALIDATE_NEGOTIATE_INFO (3.3.5.15.12); ``lie`` replaces a value."""
    connection = tree.session.connection
    values = {
        "capabilities": connection.capabilities,
        "guid": connection.guid,
        "mode": connection.mode,
        "dialects": connection.offered,
        **lie,
    }
    data = struct.pack(
        "<I16sHH", values["capabilities"], values["guid"], values["mode"], len(values["dialects"])
    )
    data += b"".join(struct.pack("<H", dialect) for dialect in values["dialects"])
    code = Fsctl.VALIDATE_NEGOTIATE_INFO
    return tree.call(ioctl_request(NO_FILE, code, data, max_output=24), sign=True)
