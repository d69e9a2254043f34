"""SMB, mounted by a client's kernel (mount.cifs(8))."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self
from zlib import crc32

from pydantic import Field, model_validator

from storagetest.config.base import Address, Port, SecretText, Size, TargetOptions
from storagetest.errors import AttachError, OptionRefused, StoragetestError, TargetDead
from storagetest.hosts import Host
from storagetest.protocols._acquire import reject_newlines
from storagetest.protocols._mount import MountEntry
from storagetest.protocols._preflight import collect_diagnostics
from storagetest.protocols.base import Capability, ClientRequirements, register
from storagetest.protocols.template import Attaching, Mounted, MountedProtocol, MountRequest

DEBUG_DATA = "/proc/fs/cifs/DebugData"

_DIALECTS = {"0x0": "1.0", "0x210": "2.1", "0x300": "3.0", "0x302": "3.0.2", "0x311": "3.1.1"}
"""MS-SMB2 2.2.3, the dialect revision numbers; the client's kernel has none for SMB1."""

SMB1 = "1.0"
_INSECURE = (
    "dialect 1.0 (SMB1) is INSECURE: no encryption, and any host on the network can change data and "
    "sessions. Use it only to compare with old figures, on a network of its own"
)


@register
class Smb(MountedProtocol["Smb.Options"]):
    """SMB 2.1 to 3.1.1, mounted by a client's kernel, with signing and encryption.

    SMB1 (dialect 1.0) is there for comparisons with old figures. It is insecure, and needs
    `insecure_dialect: true`.
    """

    name = "smb"
    title = "SMB"
    ports = (445,)

    class Options(TargetOptions):
        """A share, an account and the mount options."""

        short: ClassVar[Mapping[str, str]] = {"dialect": "v"}

        address: Address
        """The server."""

        share: Annotated[str, Field(pattern=r"^[^/\\,]+$")]
        """The share's name."""

        username: Annotated[str, Field(pattern=r"^[^\n]+$")]
        """The account."""

        password: SecretText
        """Its password; ``${env:NAME}`` or ``${file:PATH}`` keep it out of this file."""

        domain: Annotated[str, Field(pattern=r"^[^\n]+$")] | None = None
        """The account's domain or workgroup; with ``kerberos``, its realm."""

        kerberos: Address | None = None
        """Log in with Kerberos in the cases on the wire: the host in the server's principal cifs/HOST.

        The tickets come from the KDC of the client's krb5.conf, with the account's password. Needs the extra
        ``kerberos``. The client's mount does not use it.
        """

        port: Port = 445
        """The TCP port."""

        dialect: Literal["1.0", "2.1", "3.0", "3.1.1"] = "3.1.1"
        """The dialect, in quotes; the client accepts no other. 1.0 is SMB1 and needs ``insecure_dialect``."""

        insecure_dialect: bool = False
        """Permit dialect 1.0, which protects neither data nor sessions. Every run warns of it."""

        signing: bool = False
        """Sign every packet. With false the server decides, and may require it."""

        encryption: bool = False
        """Encrypt every packet (seal); needs dialect 3.0 or later."""

        posix: bool = False
        """Request the POSIX extensions of SMB 3.1.1."""

        max_channels: Annotated[int, Field(ge=1, le=16)] = 1
        """TCP connections of this session (multichannel); more than one needs dialect 3.0 or later."""

        cache: Literal["strict", "none", "loose"] = "strict"
        """The client's caching: as leases permit (strict), none, or looser than the protocol."""

        rsize: Annotated[Size, Field(ge=4096)] | None = None
        """Largest READ in bytes."""

        wsize: Annotated[Size, Field(ge=4096)] | None = None
        """Largest WRITE in bytes."""

        @property
        def insecure(self) -> str:
            """Return why SMB1 is a risk; "" for the other dialects."""
            return _INSECURE if self.dialect == SMB1 else ""

        @property
        def target_label(self) -> str:
            """Label of the target in messages."""
            return f"smb {self.dialect} {source(self)}"

        @model_validator(mode="after")
        def _possible(self) -> Self:
            if self.dialect == SMB1 and not self.insecure_dialect:
                raise ValueError(f"{_INSECURE}. To use it, set `insecure_dialect: true`")
            if self.dialect in {SMB1, "2.1"} and self.encryption:
                raise ValueError(f"dialect {self.dialect} has no encryption: use 3.0 or 3.1.1")
            if self.dialect in {SMB1, "2.1"} and self.max_channels > 1:
                raise ValueError(f"dialect {self.dialect} has no multichannel: use 3.0 or 3.1.1")
            if self.dialect != "3.1.1" and self.posix:
                raise ValueError("the POSIX extensions require dialect 3.1.1")
            return self

    searched: ClassVar[Mapping[str, tuple[object, ...]]] = {"max_channels": (1, 2, 4, 8)}
    example: ClassVar[Mapping[str, Any]] = {
        "address": "nas.example.net",
        "share": "bench",
        "username": "tester",
        "password": "${env:SMB_PASSWORD}",
    }

    capability_names = frozenset({"filesystem", "shared", "locks", "smb-wire", "multi_session"})

    def capabilities(self, options: Smb.Options) -> frozenset[Capability]:
        """Return the dialect's capabilities: multichannel from 3.0 on, wire cases (SMB2) not of SMB1."""
        more = {"multi_session"} if options.dialect not in {SMB1, "2.1"} else set()
        wire = {"smb-wire"} if options.dialect != SMB1 else set()
        return frozenset({"filesystem", "shared", "locks", *wire, *more})

    def has_server_inodes(self, mount_options: Mapping[str, str]) -> bool:
        """Return whether `serverino` is in effect (mount.cifs(8)).

        The client drops it for the whole mount once it could not get the number of one file, and reports
        numbers of its own from then on.
        """
        return "serverino" in mount_options

    def needs(self, options: Smb.Options) -> ClientRequirements:
        """Return mount.cifs, the module, and the server's port."""
        return ClientRequirements(
            tools=("mount.cifs",),
            modules=("cifs",),
            packages="cifs-utils",
            address=options.address,
            port=options.port,
        )

    def mount_request(self, options: Smb.Options) -> MountRequest:
        """Return the arguments of mount.cifs."""
        return MountRequest(
            "cifs",
            source(options),
            lambda secret: mount_options(options, secret),
            secret=credentials(options),
            files=[DEBUG_DATA],
        )

    def negotiated(self, attaching: Attaching, options: Smb.Options, mount: Mounted) -> Mapping[str, str]:  # noqa: ARG002
        """Return the mount's options and its session's properties."""
        return parse_negotiated(mount.entry, mount.files.get(DEBUG_DATA, ""), source(options))

    def requested(self, options: Smb.Options) -> Mapping[str, object]:
        """Return the requested options; a server may add signing or encryption."""
        return {
            "vers": options.dialect,
            "signed": "yes" if options.signing and not options.encryption else None,
            "encrypted": "yes" if options.encryption else None,
            # The client lists the option if it is in use; if the server refuses it, the mount fails.
            "posix": "yes" if options.posix else None,
            "channels": options.max_channels if options.max_channels > 1 else None,
            "cache": options.cache,
            "rsize": options.rsize,
            "wsize": options.wsize,
        }

    def error_from_output(self, stderr: str, options: Smb.Options, client: str) -> StoragetestError | None:
        """Return the error for the errno(3) in mount.cifs's stderr, or None if it is unknown."""
        number = re.search(r"mount error\((\d+)\)", stderr)
        if number is None:
            return None
        target, where = (options.target_label, f"(mount.cifs on {client}: {stderr.strip().splitlines()[0]})")
        match int(number[1]):
            case 13 | 126 | 127 | 128 | 129:
                return AttachError(
                    f"{target}: the server refuses user {options.username!r}: wrong name or password, "
                    f"or no right to the share {where}"
                )
            case 2 | 6:
                return AttachError(f"{target}: the server has no share {options.share!r} {where}")
            case 95:
                extras = (
                    f"{' with encryption' * options.encryption}{' with POSIX extensions' * options.posix}"
                )
                return OptionRefused(
                    f"{target}: the server does not support dialect {options.dialect}{extras} {where}"
                )
            case 22:
                return AttachError(f"{target}: {client}'s kernel rejects one of the options {where}")
            case 112 if options.dialect == SMB1:
                return OptionRefused(
                    f"{target}: the server does not answer dialect 1.0: it has no SMB1, or has switched it "
                    f"off {where}"
                )
            case 110 | 111 | 112 | 113 | 115:
                return TargetDead(f"{target}: the server does not respond {where}")
        return None

    def collect_diagnostics(self, client: Host, options: Smb.Options) -> Mapping[str, str]:  # noqa: ARG002
        """Collect the cifs module's sessions and counters."""
        return collect_diagnostics(
            client, {"DebugData": ["cat", DEBUG_DATA], "Stats": ["cat", "/proc/fs/cifs/Stats"]}
        )


def source(options: Smb.Options) -> str:
    """Return the UNC name."""
    return f"//{options.address}/{options.share}"


def credentials(options: Smb.Options) -> bytes:
    """Build the credentials file of mount.cifs(8)."""
    password = reject_newlines(options.password.reveal(), f"{options.target_label}: the password")
    lines = {"username": options.username, "password": password, "domain": options.domain}
    return "".join(f"{key}={value}\n" for key, value in lines.items() if value is not None).encode()


def mount_options(options: Smb.Options, secret: str) -> list[str]:
    """Build the options of mount.cifs(8); ``secret`` is the path of the credentials file, POINT.secret."""
    values: dict[str, object] = {
        "credentials": secret,
        "vers": options.dialect,
        "port": options.port,
        "cache": options.cache,
        "rsize": options.rsize,
        "wsize": options.wsize,
        "max_channels": options.max_channels if options.max_channels > 1 else None,
        "cruid": session_mark(secret.removesuffix(".secret")),
        # Seconds. The client detects a dead server after two intervals; the kernel's default is 60 s.
        "echo_interval": 10,
    }
    flags = {"sign": options.signing, "seal": options.encryption, "posix": options.posix}
    flags["multichannel"] = options.max_channels > 1
    return [
        *(f"{key}={value}" for key, value in values.items() if value is not None),
        *(flag for flag, enabled in flags.items() if enabled),
        # A separate session, even if the client has other mounts from this server.
        "nosharesock",
    ]


def session_mark(point: str) -> int:
    """Return the number by which the session of the mount at ``point`` is found among others of its share.

    It is the option ``cruid``, which DebugData shows (``Cred User``): whose Kerberos credentials the mount
    uses. One with a password uses none.
    """
    return crc32(point.encode()) & 0x7FFFFFFF


def parse_negotiated(entry: MountEntry, debug_data: str, unc: str) -> dict[str, str]:
    """Return the negotiated options: mountinfo's options and DebugData's session."""
    keys = ("vers", "rsize", "wsize", "cache", "max_channels", "sec")
    negotiated = {key: entry.options[key] for key in keys if key in entry.options}
    negotiated.update({flag: "yes" for flag in ("seal", "posix") if flag in entry.options})
    return {**negotiated, **parse_debug_data(debug_data, unc, session_mark(entry.point))}


def parse_debug_data(text: str, unc: str, mark: int) -> dict[str, str]:
    """Parse the server entry of a mount of ``unc`` in /proc/fs/cifs/DebugData: dialect, signed, sealed.

    It is the one with ``mark`` (:func:`session_mark`), or the newest where the kernel shows no such number.
    The format has no specification and differs by kernel: ``Dialect 0x311 signed``, ``Encrypted``,
    ``Channel:`` blocks. The parser searches the whole entry for these words.
    """
    blocks = re.split(r"(?m)^(?=\d+\) ConnectionId)", text)
    share = unc.replace("/", "\\")
    matching = [block for block in blocks if share in block or unc in block]
    if not matching:
        return {}
    if any("Cred User:" in block for block in matching):
        matching = [block for block in matching if re.search(rf"Cred User: {mark}\b", block)]
    if not matching:  # of other mounts alone
        return {}
    block = max(matching, key=_connection)
    session = {}
    dialect = re.search(r"Dialect (0x[0-9a-f]+)", block)
    if dialect:
        session["dialect"] = _DIALECTS.get(dialect[1], dialect[1])
    session["signed"] = "yes" if re.search(r"\bsigned\b", block) else "no"
    session["encrypted"] = "yes" if re.search(r"\b(?:sealed|encrypted|Encrypted)\b", block) else "no"
    channels = re.search(r"Extra Channels: (\d+)", block)
    session["channels"] = str(1 + int(channels[1])) if channels else "1"
    return session


def _connection(block: str) -> int:
    """Return the number of a server entry's connection: later ones have larger numbers."""
    found = re.search(r"ConnectionId: (0x[0-9a-f]+)", block)
    return int(found[1], 16) if found else 0
