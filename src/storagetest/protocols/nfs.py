"""NFS, mounted by a client's kernel (mount.nfs(8), nfs(5))."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from storagetest.config.base import Address, Port, SecretText, Size, TargetOptions, host_and_port
from storagetest.errors import (
    AttachError,
    ClientLacks,
    ConfigError,
    OptionRefused,
    StoragetestError,
    TargetDead,
)
from storagetest.hosts import Host
from storagetest.protocols._mount import MountEntry
from storagetest.protocols._preflight import collect_diagnostics, run_quietly
from storagetest.protocols.base import Capability, ClientRequirements, register
from storagetest.protocols.template import Attaching, Mounted, MountedProtocol, MountRequest

PORT = 2049
MOUNTSTATS = "/proc/self/mountstats"

_READ_BACK = ("vers", "rsize", "wsize", "nconnect", "proto", "sec", "hard", "soft", "timeo", "retrans")


@register
class Nfs(MountedProtocol["Nfs.Options"]):
    """NFS v3 to v4.2, mounted by a client's kernel.

    A mount is hard by default: while a server does not respond, the kernel waits and no I/O fails. The
    deadlines of attach, workload and release end such a wait; a dead mount is then removed by force and
    lazily.
    """

    name = "nfs"
    title = "NFS"
    ports = (PORT, 111)

    class Options(TargetOptions):
        """An export and its mount options."""

        short: ClassVar[Mapping[str, str]] = {"version": "v"}

        address: Address
        """The server."""

        export: Annotated[str, Field(pattern=r"^/")]
        """The path to mount. For NFSv4 it starts at the server's pseudo-root (often ``/``)."""

        version: Literal["3", "4.0", "4.1", "4.2"] = "4.2"
        """The protocol's version, in quotes."""

        port: Port | None = None
        """The NFS port. Without it 2049, and for v3 the port that the server's rpcbind reports."""

        nconnect: Annotated[int, Field(ge=1, le=16)] | None = None
        """TCP connections of this mount. The kernel shares them among all mounts from one server."""

        rsize: Annotated[Size, Field(ge=1024)] | None = None
        """Largest READ in bytes. If a server lowers it, the cases that measure it fail."""

        wsize: Annotated[Size, Field(ge=1024)] | None = None
        """Largest WRITE in bytes; like ``rsize``."""

        security: Literal["sys", "krb5", "krb5i", "krb5p"] = "sys"
        """The security flavour."""

        service_principal: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
        """Kerberos: the server's host-based service for wire cases. Without it nfs@ and the ``address``."""

        hard: bool = True
        """Retry forever (hard); false fails with an I/O error after ``retrans`` retries (soft)."""

        timeo: Annotated[int, Field(ge=1)] | None = None
        """Tenths of a second before a request is sent again; the kernel's default is 600 over TCP."""

        retrans: Annotated[int, Field(ge=0)] | None = None
        """Retries before the kernel starts recovery (hard) or fails the request (soft)."""

        lock: bool = True
        """v3: lock on the server (NLM; needs rpc.statd on the client); false: only within the client."""

        mount_port: Port | None = None
        """v3: the port of the MOUNT service. Without it the port that the server's rpcbind reports."""

        lock_port: Port | None = None
        """v3: the port of the lock manager (NLM) for wire cases; like ``mount_port``."""

        wire_mount: SecretText | None = None
        """v3: host:port of the MOUNT service for wire cases; needed with ``wire``, and of its host."""

        wire_lock: SecretText | None = None
        """v3: host:port of the lock manager (NLM) for wire cases; needed with ``wire`` and ``lock``."""

        @model_validator(mode="after")
        def _wire_names_every_program(self) -> Nfs.Options:
            missing = [
                name
                for name, value in (("wire_mount", self.wire_mount), ("wire_lock", self.wire_lock))
                if value is None and (name != "wire_lock" or self.lock)
            ]
            if self.version == "3" and self.wire is not None and missing:
                raise ValueError(f"with `wire`, NFS version 3 needs {' and '.join(missing)}: host:port")
            return self

        @property
        def target_label(self) -> str:
            """Label of the target in messages."""
            return f"nfs {self.version} {source(self)}"

        def wire_endpoint(self, address: str, port: int | None) -> tuple[str, int]:
            """Return host and port for wire cases; without a ``port`` it is 2049."""
            return super().wire_endpoint(address, port or PORT)

        def wire_program_port(self, wire: SecretText | None, port: int | None) -> int | None:
            """Return the port in ``wire`` for wire cases, else ``port``; None is that of rpcbind.

            Raises ConfigError if ``wire`` is not host:port, or names another host than the option ``wire``.
            """
            if wire is None:
                return port
            host, number = host_and_port(wire)
            if host != self.wire_endpoint(self.address, self.port)[0]:
                raise ConfigError("wire_mount and wire_lock: expected the host of `wire`")
            return number

    searched: ClassVar[Mapping[str, tuple[object, ...]]] = {"nconnect": (1, 2, 4, 8, 16)}
    example: ClassVar[Mapping[str, Any]] = {
        "address": "nas.example.net",
        "export": "/export",
        "version": "4.2",
    }

    capability_names = frozenset(
        {"filesystem", "shared", "multi_session", "nfs3-wire", "nfs4-wire", "gss-wire", "locks"}
    )

    def capabilities(self, options: Nfs.Options) -> frozenset[Capability]:
        """Return the version's capabilities, and ``multi_session``: every kernel supports nconnect.

        Most wire cases authenticate as a system (AUTH_SYS). A variant with Kerberos has those of RPCSEC_GSS,
        with NFSv4.
        """
        extra = {"locks"} if options.lock or options.version != "3" else set()
        if options.security == "sys":
            wire = {"nfs3-wire" if options.version == "3" else "nfs4-wire"}
        else:
            wire = set() if options.version == "3" else {"gss-wire"}
        return frozenset({"filesystem", "shared", "multi_session", *wire, *extra})

    def needs(self, options: Nfs.Options) -> ClientRequirements:
        """Return mount.nfs, the version's module, and the server's port."""
        return ClientRequirements(
            tools=("mount.nfs",),
            modules=("nfs" if options.version == "3" else "nfsv4",),
            packages="nfs-common (Debian) or nfs-utils",
            address=options.address,
            port=options.port or PORT,
        )

    def discover(self, client: Host, address: str, *, deadline: float) -> Sequence[Mapping[str, Any]]:
        """Query mountd for its exports (showmount(8)); a server with NFSv4 only has no mountd."""
        output = run_quietly(client, ["showmount", "--no-headers", "--exports", address], deadline=deadline)
        paths = [line.rpartition(" ")[0].strip() or line.strip() for line in output.splitlines()]
        return [{"export": path} for path in paths if path.startswith("/")]

    def mount_request(self, options: Nfs.Options) -> MountRequest:
        """Return the arguments of mount.nfs."""
        fstype = "nfs" if options.version == "3" else "nfs4"
        return MountRequest(fstype, source(options), mount_options(options), files=[MOUNTSTATS])

    def negotiated(self, attaching: Attaching, options: Nfs.Options, mount: Mounted) -> Mapping[str, str]:  # noqa: ARG002
        """Return the mount's options and transports."""
        return parse_negotiated(mount.entry, mount.files.get(MOUNTSTATS, ""))

    def requested(self, options: Nfs.Options) -> Mapping[str, object]:
        """Return the requested version, security flavour, transfer sizes and number of connections."""
        return {
            "vers": options.version,
            "sec": options.security,
            "rsize": options.rsize,
            "wsize": options.wsize,
            "nconnect": options.nconnect,
        }

    def error_from_output(self, stderr: str, options: Nfs.Options, client: str) -> StoragetestError | None:
        """Return the error for mount.nfs's English stderr, or None if the text is unknown."""
        target, where = options.target_label, f"(mount.nfs on {client}: {stderr.strip()})"
        if re.search(
            r"Protocol not supported|requested NFS version|NFS version or transport protocol", stderr
        ):
            return OptionRefused(f"{target}: the server does not support version {options.version} {where}")
        if re.search(
            r"Connection refused|No route to host|timed out|Host is down|Network is unreachable", stderr
        ):
            return TargetDead(f"{target}: the server does not respond {where}")
        if "rpc.statd is not running" in stderr:
            return ClientLacks(
                f"{target}: locks over NFSv3 require rpc.statd on {client}. Run `systemctl start rpc-statd` "
                f"there, or set `lock: false` {where}"
            )
        if re.search(r"incorrect mount option|Invalid argument|an unsupported option", stderr):
            return AttachError(f"{target}: {client}'s kernel rejects one of the options {where}")
        if re.search(r"access denied|Permission denied|Operation not permitted", stderr):
            return AttachError(
                f"{target}: the server does not permit {client} to mount {options.export}. Check that it is "
                f"exported to this client, with sec={options.security}, and for its source port {where}"
            )
        if re.search(r"No such file or directory|Not a directory", stderr):
            return AttachError(f"{target}: the server has no export {options.export} {where}")
        return None

    def collect_diagnostics(self, client: Host, options: Nfs.Options) -> Mapping[str, str]:  # noqa: ARG002
        """Collect mountstats and the kernel's last messages."""
        return collect_diagnostics(
            client, {"mountstats": ["cat", MOUNTSTATS], "rpcinfo": ["cat", "/proc/net/rpc/nfs"]}
        )


def source(options: Nfs.Options) -> str:
    """Return the device argument of mount(8); an IPv6 address is in brackets."""
    address = f"[{options.address}]" if ":" in options.address else options.address
    return f"{address}:{options.export}"


def mount_options(options: Nfs.Options) -> list[str]:
    """Build the options of nfs(5); ``retry=0`` because mount.nfs retries for two minutes by default."""
    values: dict[str, object] = {
        "vers": options.version,
        "proto": "tcp6" if ":" in options.address else "tcp",
        "sec": options.security,
        "retry": 0,
        "port": options.port,
        "mountport": options.mount_port if options.version == "3" else None,
        "nconnect": options.nconnect,
        "rsize": options.rsize,
        "wsize": options.wsize,
        "timeo": options.timeo,
        "retrans": options.retrans,
    }
    flags = ["hard" if options.hard else "soft", *(["nolock"] if not options.lock else [])]
    return [*(f"{key}={value}" for key, value in values.items() if value is not None), *flags]


def parse_negotiated(entry: MountEntry, mountstats: str) -> dict[str, str]:
    """Return the negotiated options: mountinfo's and, from mountstats, the number of transports."""
    negotiated = {key: entry.options[key] or "yes" for key in _READ_BACK if key in entry.options}
    transports = count_transports(mountstats, entry.point)
    if transports:
        negotiated["transports"] = str(transports)
    negotiated.setdefault("nconnect", "1")
    return negotiated


def count_transports(mountstats: str, point: str) -> int:
    """Count the ``xprt:`` lines of the mount on ``point`` in /proc/self/mountstats: its TCP connections."""
    count, in_mount = 0, False
    for line in mountstats.splitlines():
        if line.startswith("device "):
            in_mount = f" mounted on {point} " in line
        elif in_mount and line.strip().startswith("xprt:"):
            count += 1
    return count
