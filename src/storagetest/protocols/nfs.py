"""NFS, mounted by a client's kernel (mount.nfs(8), nfs(5))."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

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
from storagetest.protocols import _nfs_layout
from storagetest.protocols._mount import MountEntry
from storagetest.protocols._preflight import collect_diagnostics, run_quietly
from storagetest.protocols.base import Capability, ClientRequirements, register
from storagetest.protocols.template import Attaching, Mounted, MountedProtocol, MountRequest

PORT = 2049
RDMA_PORT = 20049
"""RFC 8267, 6: the port of NFS over RDMA."""
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

        proto: Literal["tcp", "rdma"] = "tcp"
        """The transport. With ``rdma`` the client needs an RDMA device; wire cases do not run."""

        port: Port | None = None
        """The NFS port. Without it 2049, and for v3 the port that the server's rpcbind reports; 20049 with
        RDMA."""

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

        layout: Literal["none", "files", "block", "scsi", "flexfiles"] | None = None
        """pNFS (4.1, 4.2): the layout by which the client must do its I/O; ``none``: through the server. It
        selects nothing: the server and the client's modules do. The attach writes and reads a file, and if
        its data do not go that way, the cases fail."""

        lock: bool = True
        """v3: lock on the server (NLM; needs rpc.statd on the client); false: only within the client."""

        mount_port: Port | None = None
        """v3: the port of the MOUNT service. Without it the port that the server's rpcbind reports."""

        lock_port: Port | None = None
        """v3: the port of the lock manager (NLM) for wire cases; like ``mount_port``."""

        status_port: Port | None = None
        """v3: the port of the status monitor (NSM) for wire cases; like ``mount_port``."""

        wire_mount: SecretText | None = None
        """v3: host:port of the MOUNT service for wire cases; needed with ``wire``, and of its host."""

        wire_lock: SecretText | None = None
        """v3: host:port of the lock manager (NLM) for wire cases; needed with ``wire`` and ``lock``."""

        wire_status: SecretText | None = None
        """v3: host:port of the status monitor (NSM) for wire cases, which are skipped if ``wire`` is set
        without it."""

        @field_validator("layout")
        @classmethod
        def _layouts_are_of_4_1(cls, layout: str | None, info: ValidationInfo) -> str | None:
            version = info.data.get("version")
            if layout is not None and version not in {"4.1", "4.2"}:
                raise ValueError(f"pNFS needs NFS version 4.1 or 4.2; this variant has {version}")
            return layout

        @property
        def has_layout(self) -> bool:
            """Whether the data must go round the server."""
            return self.layout not in {None, _nfs_layout.NONE}

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
                raise ConfigError("wire_mount, wire_lock and wire_status: expected the host of `wire`")
            return number

    searched: ClassVar[Mapping[str, tuple[object, ...]]] = {"nconnect": (1, 2, 4, 8, 16)}
    example: ClassVar[Mapping[str, Any]] = {
        "address": "nas.example.net",
        "export": "/export",
        "version": "4.2",
    }

    capability_names = frozenset(
        {"filesystem", "shared", "multi_session", "nfs3-wire", "nfs4-wire", "gss-wire", "locks", "pnfs"}
    )

    def capabilities(self, options: Nfs.Options) -> frozenset[Capability]:
        """Return the version's capabilities, and ``multi_session``: every kernel supports nconnect.

        Wire cases speak TCP. Most authenticate as a system (AUTH_SYS); those of RPCSEC_GSS need NFSv4 and
        Kerberos.
        """
        extra = {"locks"} if options.lock or options.version != "3" else set()
        extra |= {"pnfs"} if options.has_layout else set()
        wire: set[str] = set()
        if options.proto == "tcp" and options.security == "sys":
            wire = {"nfs3-wire" if options.version == "3" else "nfs4-wire"}
        elif options.proto == "tcp" and options.version != "3":
            wire = {"gss-wire"}
        return frozenset({"filesystem", "shared", "multi_session", *wire, *extra})

    def needs(self, options: Nfs.Options) -> ClientRequirements:
        """Return mount.nfs, the modules of version, layout and transport, and the server's port over TCP."""
        layout = _nfs_layout.MODULES.get(options.layout or "")
        rdma = options.proto == "rdma"
        return ClientRequirements(
            tools=("mount.nfs",),
            modules=(
                "nfs" if options.version == "3" else "nfsv4",
                *([layout] if layout else []),
                *(["rpcrdma"] if rdma else []),
            ),
            packages="nfs-common (Debian) or nfs-utils",
            address=options.address,
            port=0 if rdma else options.port or PORT,
            rdma=rdma,
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

    def negotiated(self, attaching: Attaching, options: Nfs.Options, mount: Mounted) -> Mapping[str, str]:
        """Return the mount's options and transports, and the layout that its first I/O uses."""
        mountstats = mount.files.get(MOUNTSTATS, "")
        negotiated = parse_negotiated(mount.entry, mountstats)
        before = _nfs_layout.layout_use(mountstats, mount.entry.point)
        if before is not None:
            negotiated["layout"] = before.driver
        if before is not None and options.has_layout:
            negotiated["layout"] = _probe_layout(attaching, mount, before)
        return negotiated

    def requested(self, options: Nfs.Options) -> Mapping[str, object]:
        """Return the requested version, security flavour, transfer sizes and number of connections."""
        return {
            "vers": options.version,
            "sec": options.security,
            "rsize": options.rsize,
            "wsize": options.wsize,
            "nconnect": options.nconnect,
            "proto": _transport(options) if options.proto == "rdma" else None,
            "layout": options.layout,
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


def _probe_layout(attaching: Attaching, mount: Mounted, before: _nfs_layout.LayoutUse) -> str:
    """Write and read a file in the mount; return the layout that was used, or what happened instead."""
    with attaching.step("writing and reading the first data"):
        probe = ["sh", "-c", _nfs_layout.PROBE, "storagetest-layout", mount.directory, MOUNTSTATS]
        done = attaching.run(probe)
    if not done.ok:
        raise AttachError(
            f"{attaching.target}: {done.host} cannot write and read a file: {done.stderr.strip()}"
        )
    after = _nfs_layout.layout_use(done.stdout, mount.entry.point)
    return "no value" if after is None else _nfs_layout.layout_got(before, after)


def source(options: Nfs.Options) -> str:
    """Return the device argument of mount(8); an IPv6 address is in brackets."""
    address = f"[{options.address}]" if ":" in options.address else options.address
    return f"{address}:{options.export}"


def _transport(options: Nfs.Options) -> str:
    """Return the transport's name in nfs(5): ``tcp``, ``tcp6``, ``rdma`` or ``rdma6``."""
    return f"{options.proto}6" if ":" in options.address else options.proto


def mount_options(options: Nfs.Options) -> list[str]:
    """Build the options of nfs(5); ``retry=0`` because mount.nfs retries for two minutes by default."""
    values: dict[str, object] = {
        "vers": options.version,
        "proto": _transport(options),
        "sec": options.security,
        "retry": 0,
        "port": options.port or (RDMA_PORT if options.proto == "rdma" else None),
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
    return sum(line.strip().startswith("xprt:") for line in _nfs_layout.lines_of(mountstats, point))
