"""NVMe over TCP, connected by nvme-cli on a client (nvme-connect(1); NVM Express TCP Transport).

Each attach uses a new host NQN (unless the option ``host_nqn`` sets one). The pair of subsystem NQN and host
NQN therefore identifies the attach's controllers in sysfs. The release deletes these controllers only, not
other controllers of the subsystem.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import (
    Address,
    BlockOptions,
    DeviceIdentity,
    Items,
    Model,
    Port,
    Portal,
    SecretText,
)
from storagetest.errors import AttachError, DeadlineExceeded, OptionRefused, StoragetestError, TargetDead
from storagetest.hosts import Completed, Host
from storagetest.polling import wait_until
from storagetest.protocols._acquire import WITHIN
from storagetest.protocols._block_device import block_capabilities, required_tools
from storagetest.protocols._preflight import collect_diagnostics, run_quietly
from storagetest.protocols.base import Capability, ClientRequirements, OptionMismatch, register
from storagetest.protocols.template import Attaching, Connection, DeviceProtocol, each_path

HOST_NQN_PREFIX = "nqn.2014-08.org.nvmexpress:uuid:"
"""NVM Express Base Specification, NVMe Qualified Names: the form that carries a UUID."""

SCAN_SECONDS = 5.0
"""Seconds for a live controller to list its namespaces; the kernel scans for them immediately (chosen)."""

FIND = r"""
nqn=$1 hostnqn=$2
shopt -s nullglob
controllers() {
    local controller name host
    for controller in /sys/class/nvme/nvme*; do
        read -r name <"$controller/subsysnqn" && [ "$name" = "$nqn" ] || continue
        [ -z "$1" ] || { read -r host <"$controller/hostnqn" && [ "$host" = "$1" ]; } || continue
        echo "${controller##*/}"
    done 2>/dev/null
}
"""

EXISTING = FIND + 'controllers ""; exit 0'

QUERY = (
    FIND
    + r"""
namespace=$3 attributes=$4
controller=$(controllers "$hostnqn")
controller=${controller%%$'\n'*}
for path in $(controllers "$hostnqn"); do
    read -r state <"/sys/class/nvme/$path/state" && echo "path-$path:$state"
done 2>/dev/null
[ -n "$controller" ] && cd "/sys/class/nvme/$controller" || exit 0
echo "controller:$controller"
# A path's name is nvme<S>c<C>n<N>, its disk's nvme<S>n<N> (multipath); without multipath it is the disk.
for path in nvme*n*; do
    [[ $path =~ ^(nvme[0-9]+)(c[0-9]+)?(n[0-9]+)$ ]] || continue
    disk=${BASH_REMATCH[1]}${BASH_REMATCH[3]}
    { read -r id <"$path/nsid" || read -r id <"/sys/block/$disk/nsid"; } 2>/dev/null || continue
    echo "namespace-$id:$disk"
    [ "$id" = "$namespace" ] && [ -b "/dev/$disk" ] && read -r size <"/sys/block/$disk/size" &&
        [ "$size" -gt 0 ] && echo "block:$disk"
done
grep -s -H . $attributes
exit 0
"""
)

RELEASE = (
    WITHIN
    + FIND
    + r"""
limit=$3
for controller in $(controllers "$hostnqn"); do
    within "$limit" sh -c 'echo 1 > "$1"' delete "/sys/class/nvme/$controller/delete_controller"
done
tail -n 3 "$log"
[ -z "$(controllers "$hostnqn")" ]
"""
)

_NEGOTIATED = ("queue_count", "sqsize", "kato", "numa_node", "model", "firmware_rev", "cntlid", "transport")


Nsid = Annotated[int, Field(ge=1, le=0xFFFFFFFE)]
"""A Namespace Identifier (NVM Express Base 3.2.1)."""


class ErasableNamespace(Model):
    """A namespace of the subsystem that may be overwritten, besides that of ``namespace``."""

    namespace: Nsid
    """The namespace's identifier (NSID)."""

    erase: DeviceIdentity
    """The namespace's identity (WWID), as in ``erase`` of the target."""


@register
class NvmeTcp(DeviceProtocol["NvmeTcp.Options"]):
    """A namespace of an NVMe/TCP subsystem, connected by nvme-cli on a client."""

    name = "nvme-tcp"
    title = "NVMe/TCP"
    ports = (4420, 8009)

    class Options(BlockOptions):
        """A portal, a subsystem and a namespace."""

        short: ClassVar[Mapping[str, str]] = {"header_digest": "hdgst", "data_digest": "ddgst"}

        address: Address
        """The portal's address."""

        nqn: Annotated[str, Field(pattern=r"^nqn\.[\x21-\x7e]+$", max_length=223)]
        """The subsystem's name."""

        transport: Literal["tcp", "rdma"] = "tcp"
        """The transport. With ``rdma`` the client needs an RDMA device; wire cases do not run."""

        namespace: Nsid = 1
        """The namespace's identifier (NSID)."""

        more_namespaces: Items[ErasableNamespace] = ()
        """More namespaces of the subsystem that wire cases may overwrite, each with its identity. Cases of
        two namespaces need one. Clients use that of ``namespace`` only."""

        port: Port = 4420
        """The portal's TCP port."""

        host_nqn: Annotated[str, Field(pattern=r"^nqn\.[\x21-\x7e]+$", max_length=223)] | None = None
        """The host NQN, if the subsystem permits only some; without it a new one for every attach."""

        header_digest: bool = False
        """CRC32C over every PDU's header."""

        data_digest: bool = False
        """CRC32C over every PDU's data."""

        queues: Annotated[int, Field(ge=1, le=1024)] | None = None
        """I/O queues, each a TCP connection. Default and maximum: one per CPU."""

        queue_depth: Annotated[int, Field(ge=2, le=1024)] | None = None
        """Entries of each I/O queue; nvme-cli's default is 128."""

        more_paths: Items[Portal] = ()
        """More portals of the same subsystem: each is one more path, and the kernel joins them (native
        multipath). Wire cases do not run on such a target."""

        tls_key: SecretText | None = None
        """The pre-shared key of TLS 1.3, as ``NVMeTLSkey-1:xx:<Base64>:``, for ``host_nqn``. Only wire cases
        use TLS, not a client's kernel. ``${env:NAME}`` or ``${file:PATH}`` keep it out of this file."""

        keep_alive: Annotated[int, Field(ge=1)] = 5
        """Seconds without communication after which host and controller end the association."""

        @property
        def target_label(self) -> str:
            """Label of the target in messages."""
            return f"nvme-tcp {self.nqn} namespace {self.namespace} at {self.address}"

        @model_validator(mode="after")
        def _each_namespace_once(self) -> Self:
            nsids = [self.namespace, *(one.namespace for one in self.more_namespaces)]
            if len(set(nsids)) < len(nsids):
                raise ValueError(
                    "more_namespaces: each namespace is named once, that of `namespace` not here"
                )
            return self

        @model_validator(mode="after")
        def _key_of_a_host(self) -> Self:
            if self.tls_key is not None and self.host_nqn is None:
                raise ValueError("tls_key is the key of one host: set `host_nqn` too")
            if self.transport == "rdma" and (self.header_digest or self.data_digest or self.tls_key):
                raise ValueError("header_digest, data_digest and tls_key are of NVMe/TCP, not of RDMA")
            return self

    searched: ClassVar[Mapping[str, tuple[object, ...]]] = {"queues": (1, 2, 4, 8)}
    example: ClassVar[Mapping[str, Any]] = {
        "address": "flash.example.net",
        "nqn": "nqn.2024-01.net.example:bench",
        "erase": "uuid.12345678-9abc-def0-1234-56789abcdef0",
    }

    capability_names = frozenset(
        {
            "filesystem",
            "block",
            "shared",
            "multi_session",
            "multipath",
            "nvme-tcp-wire",
            "nvme-tcp-tls-wire",
        }
    )

    def capabilities(self, options: NvmeTcp.Options) -> frozenset[Capability]:
        """Return the capabilities of the raw namespace, or of the file system on it."""
        raw = set() if options.filesystem else {"shared"}
        wire = {"nvme-tcp-tls-wire" if options.tls_key else "nvme-tcp-wire"}
        wire = set() if options.transport == "rdma" else wire
        paths = {"multipath"} if options.more_paths else wire
        return block_capabilities(options) | paths | {"multi_session"} | raw

    def needs(self, options: NvmeTcp.Options) -> ClientRequirements:
        """Return nvme-cli, the module, and the portal's port."""
        rdma = options.transport == "rdma"
        return ClientRequirements(
            tools=("nvme", *required_tools(options)),
            modules=(f"nvme_{options.transport}",),
            packages="nvme-cli",
            address=options.address,
            port=0 if rdma else options.port,
            rdma=rdma,
        )

    def discover(self, client: Host, address: str, *, deadline: float) -> Sequence[Mapping[str, Any]]:
        """Query the discovery controller (nvme-discover(1)) for its NVM subsystems over TCP."""
        # Without udev nothing else loads the module.
        run_quietly(client, ["modprobe", "-q", "nvme_tcp"], deadline=deadline)
        for port in self.ports:
            argv = ["nvme", "discover", "--transport=tcp", f"--traddr={address}", f"--trsvcid={port}"]
            subsystems = parse_discovery(
                run_quietly(client, [*argv, "--output-format=json"], deadline=deadline)
            )
            if subsystems:
                return subsystems
        return ()

    def check(self, attaching: Attaching, options: NvmeTcp.Options) -> None:
        """Reject ``tls_key``, which the client does not use; then check every path."""
        if options.tls_key is not None:
            raise OptionRefused(
                f"{attaching.target}: tls_key is for wire cases only; a client's kernel does not use it"
            )
        super().check(attaching, options)

    def connection(self, options: NvmeTcp.Options) -> Connection:
        """Return how the client connects with a new host NQN, finds the namespace, and disconnects."""
        host_id = str(uuid.uuid4())
        host_nqn = options.host_nqn or HOST_NQN_PREFIX + host_id
        return Connection(
            description=f"NVMe/TCP controller of {options.nqn} at {options.address}",
            existing=_script(EXISTING, options, ""),
            presence="is connected to this subsystem",
            remedy="Disconnect it",
            connect=partial(_connect, options, host_nqn, host_id),
            release=lambda seconds: _script(RELEASE, options, host_nqn, str(seconds - 3)),
        )

    def option_mismatches(
        self, options: NvmeTcp.Options, negotiated: Mapping[str, str]
    ) -> tuple[OptionMismatch, ...]:
        """Compare the requested values with the negotiated ones."""
        mismatches = []
        transport = negotiated.get("transport", "tcp" if options.transport == "tcp" else "no value")
        if transport != options.transport:
            mismatches.append(OptionMismatch("transport", options.transport, transport))
        io_queues = int(negotiated.get("queue_count", "1")) - 1
        depth = int(negotiated.get("sqsize", "-1")) + 1
        if options.queues is not None and io_queues != options.queues:
            mismatches.append(OptionMismatch("queues", str(options.queues), str(io_queues)))
        if options.queue_depth is not None and depth != options.queue_depth:
            mismatches.append(OptionMismatch("queue_depth", str(options.queue_depth), str(depth)))
        if "paths" in negotiated and int(negotiated["paths"]) != len(each_path(options)):
            mismatches.append(OptionMismatch("paths", str(len(each_path(options))), negotiated["paths"]))
        if "kato" in negotiated and negotiated["kato"] != str(options.keep_alive):
            mismatches.append(OptionMismatch("keep_alive", str(options.keep_alive), negotiated["kato"]))
        return tuple(mismatches)

    def collect_diagnostics(self, client: Host, options: NvmeTcp.Options) -> Mapping[str, str]:  # noqa: ARG002
        """Collect the state of every subsystem's paths and the kernel's last messages."""
        return collect_diagnostics(client, {"subsystems": ["nvme", "list-subsys"]})


def parse_discovery(text: str) -> list[dict[str, Any]]:
    """Parse a discovery log in nvme-cli's JSON into options of the NVM subsystems over TCP."""
    try:
        records = json.loads(text)["records"]
        subsystems = [
            {"nqn": record["subnqn"], "port": int(record["trsvcid"])}
            for record in records
            if record["trtype"] == "tcp" and record["subtype"].startswith("nvme")
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [entry for index, entry in enumerate(subsystems) if entry not in subsystems[:index]]


def connect_argv(options: NvmeTcp.Options, host_nqn: str, host_id: str) -> list[str]:
    """Build nvme-connect(1). The kernel reconnects a lost controller until the deadline; then I/O fails."""
    argv = [
        "nvme",
        "connect",
        f"--transport={options.transport}",
        f"--traddr={options.address}",
        f"--trsvcid={options.port}",
        f"--nqn={options.nqn}",
        f"--hostnqn={host_nqn}",
        f"--hostid={host_id}",
        f"--keep-alive-tmo={options.keep_alive}",
        "--reconnect-delay=2",
        f"--ctrl-loss-tmo={max(2, int(options.deadline))}",
    ]
    if options.queues is not None:
        argv.append(f"--nr-io-queues={options.queues}")
    if options.queue_depth is not None:
        argv.append(f"--queue-size={options.queue_depth}")
    return [
        *argv,
        *(["--hdr-digest"] if options.header_digest else []),
        *(["--data-digest"] if options.data_digest else []),
    ]


def parse_query(text: str) -> dict[str, str]:
    """Parse the query's lines ``NAME:VALUE``."""
    lines = (line.partition(":")[::2] for line in text.splitlines())
    return {name: " ".join(value.split()) for name, value in lines}


def parse_negotiated(attributes: Mapping[str, str], options: NvmeTcp.Options) -> dict[str, str]:
    """Return the controller's negotiated values from sysfs's ``attributes``.

    ``queue_count`` includes the admin queue, and ``sqsize`` is zero-based (the depth is one more), as in the
    kernel. sysfs has no file for digests: a live controller has accepted exactly the requested ones, because
    the kernel aborts if the controller's ICResp differs (nvme_tcp_init_connection).
    """
    named = {key: attributes[key] for key in _NEGOTIATED if attributes.get(key)}
    digests = {"header_digest": options.header_digest, "data_digest": options.data_digest}
    paths = {"paths": str(live_paths(attributes))} if options.more_paths else {}
    return {**named, **{key: "crc32c" if on else "none" for key, on in digests.items()}, **paths}


def live_paths(attributes: Mapping[str, str]) -> int:
    """Return the number of live controllers, from the query's lines ``path-NAME:STATE``."""
    return sum(name.startswith("path-") and state == "live" for name, state in attributes.items())


def error_from_output(done: Completed, options: NvmeTcp.Options, kernel: str) -> StoragetestError:
    """Return the error for nvme-cli's output, which differs by version, and the kernel's last messages."""
    target = options.target_label
    text = (done.stderr.strip() or done.stdout.strip()).splitlines()
    output = text[-1] if text else ""
    where = f"(nvme connect on {done.host}: {output}; its kernel: {' | '.join(kernel.splitlines())})"
    if "digest mismatch" in kernel:
        return OptionRefused(f"{target}: the target does not accept these digests {where}")
    return AttachError(
        f"{target}: the target refuses the connection. Check that it has this NQN and permits "
        f"{options.host_nqn or 'any host'} {where}"
    )


def _connect_error(attaching: Attaching, options: NvmeTcp.Options, done: Completed) -> StoragetestError:
    """Return :class:`TargetDead` if the port is closed now, else the refusal: nvme-cli reports both alike."""
    try:
        NvmeTcp().check(attaching, options)
    except TargetDead as dead:
        return dead
    log = ["sh", "-c", "dmesg | grep -w -e nvme -e nvme_tcp | tail -n 2 | sed 's/^\\[[^]]*\\] *//'"]
    return error_from_output(done, options, attaching.run(log).stdout)


def _script(script: str, options: NvmeTcp.Options, host_nqn: str, *more: str) -> list[str]:
    return ["bash", "-c", script, "storagetest-nvme", options.nqn, host_nqn, *more]


def _connect(
    options: NvmeTcp.Options, host_nqn: str, host_id: str, attaching: Attaching
) -> tuple[str, Mapping[str, str]]:
    for path in each_path(options):
        done = attaching.run(connect_argv(path, host_nqn, host_id))
        if not done.ok:
            raise _connect_error(attaching, path, done)
    attributes = _find(attaching, options, host_nqn)
    return attributes["block"], parse_negotiated(attributes, options)


def _find(attaching: Attaching, options: NvmeTcp.Options, host_nqn: str) -> dict[str, str]:
    """Wait for the namespace's disk and return sysfs's attributes of controller and disk."""
    attributes: dict[str, str] = {}
    query = _script(QUERY, options, host_nqn, str(options.namespace), " ".join(("state", *_NEGOTIATED)))

    def ready() -> bool:
        nonlocal attributes
        attributes = parse_query(attaching.run(query, check=True).stdout)
        return "block" in attributes

    description = f"namespace {options.namespace} of {options.nqn} on {attaching.client.name}"
    try:
        wait_until(ready, min(attaching.deadline.remaining(), SCAN_SECONDS), description)
    except DeadlineExceeded:
        if attributes.get("state") != "live":
            raise
    else:
        return attributes
    if f"namespace-{options.namespace}" in attributes:
        wait_until(ready, attaching.deadline.remaining(), f"a disk for {description}")
        return attributes
    others = sorted(name.removeprefix("namespace-") for name in attributes if name.startswith("namespace-"))
    raise AttachError(
        f"{options.target_label}: connected, but the subsystem has no namespace {options.namespace}; "
        f"it has {', '.join(others) or 'none'}"
    )
