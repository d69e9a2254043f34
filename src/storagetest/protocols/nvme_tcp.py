"""NVMe over TCP, connected by nvme-cli on a client (nvme-connect(1); NVM Express TCP Transport).

Every attach is a host of its own: its host NQN is made for it (unless the target's access list wants a
particular one), so the controller in sysfs that carries both NQNs is ours beyond doubt, and it is that
controller which is deleted, never "all of this subsystem's".
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from storagetest.config.base import Address, BlockOptions, Items, Port, Portal, SecretText
from storagetest.errors import AttachError, DeadlineExceeded, OptionRefused, StoragetestError, TargetDead
from storagetest.hosts import Completed, Host
from storagetest.polling import wait_until
from storagetest.protocols._acquire import WITHIN
from storagetest.protocols._block_device import block_capabilities, required_tools
from storagetest.protocols._preflight import collect_diagnostics, run_quietly
from storagetest.protocols.base import Capability, ClientRequirements, OptionMismatch, register
from storagetest.protocols.template import Attaching, Connection, DeviceProtocol, each_path

__all__ = ["NvmeTcp"]

HOST_NQN_PREFIX = "nqn.2014-08.org.nvmexpress:uuid:"
"""NVM Express Base Specification, NVMe Qualified Names: the form that carries a UUID."""

SCAN_SECONDS = 5.0
"""How long a live controller may take to show its namespaces; the kernel asks for them at once."""

FIND = r"""
nqn=$1 hostnqn=$2
shopt -s nullglob
controllers() {
    local one name host
    for one in /sys/class/nvme/nvme*; do
        read -r name <"$one/subsysnqn" && [ "$name" = "$nqn" ] || continue
        [ -z "$1" ] || { read -r host <"$one/hostnqn" && [ "$host" = "$1" ]; } || continue
        echo "${one##*/}"
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

_NEGOTIATED = ("queue_count", "sqsize", "kato", "numa_node", "model", "firmware_rev", "cntlid")


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

        namespace: Annotated[int, Field(ge=1)] = 1
        """The namespace's identifier (NSID)."""

        port: Port = 4420
        """The portal's TCP port."""

        host_nqn: Annotated[str, Field(pattern=r"^nqn\.[\x21-\x7e]+$", max_length=223)] | None = None
        """The host's name, where the subsystem admits only some; without it a new one for every attach."""

        header_digest: bool = False
        """CRC32C over every PDU's header."""

        data_digest: bool = False
        """CRC32C over every PDU's data."""

        queues: Annotated[int, Field(ge=1, le=1024)] | None = None
        """I/O queues, each a TCP connection; without it one a CPU. The kernel makes no more than CPUs."""

        queue_depth: Annotated[int, Field(ge=2, le=1024)] | None = None
        """Entries of each I/O queue; nvme-cli's default is 128."""

        more_paths: Items[Portal] = ()
        """More portals of the same subsystem: each is one more path, and the kernel joins them (native
        multipath). Such a target is for cases on a mount or a device; none on the wire is run on it."""

        tls_key: SecretText | None = None
        """The pre-shared key of TLS 1.3, as ``NVMeTLSkey-1:xx:<Base64>:``, for ``host_nqn``. Cases on the
        wire speak TLS with it; a client's kernel is not made to. ``${env:NAME}`` or ``${file:PATH}`` keep it
        out of this file."""

        keep_alive: Annotated[int, Field(ge=1)] = 5
        """Seconds of silence after which host and controller give each other up."""

        @property
        def target_label(self) -> str:
            """The target as messages name it."""
            return f"nvme-tcp {self.nqn} namespace {self.namespace} at {self.address}"

        @model_validator(mode="after")
        def _key_of_a_host(self) -> Self:
            if self.tls_key is not None and self.host_nqn is None:
                raise ValueError("tls_key is the key of one host: `host_nqn` says which")
            return self

    searched: ClassVar[Mapping[str, tuple[object, ...]]] = {"queues": (1, 2, 4, 8)}
    example: ClassVar[Mapping[str, Any]] = {
        "address": "flash.example.net",
        "nqn": "nqn.2024-01.net.example:bench",
        "erase": "uuid.12345678-9abc-def0-1234-56789abcdef0",
    }

    def capabilities(self, options: NvmeTcp.Options) -> frozenset[Capability]:
        """Return what the raw namespace, or the file system on it, can do."""
        raw = set() if options.filesystem else {"shared"}
        wire = "nvme-tcp-tls-wire" if options.tls_key else "nvme-tcp-wire"
        return (
            block_capabilities(options) | {"multipath" if options.more_paths else wire, "multi_session"} | raw
        )

    def needs(self, options: NvmeTcp.Options) -> ClientRequirements:
        """Return nvme-cli, the module, and the portal's port."""
        return ClientRequirements(
            tools=("nvme", *required_tools(options)),
            modules=("nvme_tcp",),
            packages="nvme-cli",
            address=options.address,
            port=options.port,
        )

    def discover(self, client: Host, address: str, *, deadline: float) -> Sequence[Mapping[str, Any]]:
        """Ask the discovery controller (nvme-discover(1)) for its NVM subsystems over TCP."""
        run_quietly(
            client, ["modprobe", "-q", "nvme_tcp"], deadline=deadline
        )  # without udev nobody else loads it
        for port in self.ports:
            argv = ["nvme", "discover", "--transport=tcp", f"--traddr={address}", f"--trsvcid={port}"]
            found = parse_discovery(run_quietly(client, [*argv, "--output-format=json"], deadline=deadline))
            if found:
                return found
        return ()

    def check(self, attaching: Attaching, options: NvmeTcp.Options) -> None:
        """Refuse a key, which the client would not use; then check every path."""
        if options.tls_key is not None:
            raise OptionRefused(
                f"{attaching.target}: tls_key is for cases on the wire; no client's kernel is made to use it"
            )
        super().check(attaching, options)

    def connection(self, options: NvmeTcp.Options) -> Connection:
        """Return how the client connects as a host of its own, finds the namespace, and disconnects."""
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
        """Compare what was asked for with what came out."""
        found = []
        io_queues = int(negotiated.get("queue_count", "1")) - 1
        depth = int(negotiated.get("sqsize", "-1")) + 1
        if options.queues is not None and io_queues != options.queues:
            found.append(OptionMismatch("queues", str(options.queues), str(io_queues)))
        if options.queue_depth is not None and depth != options.queue_depth:
            found.append(OptionMismatch("queue_depth", str(options.queue_depth), str(depth)))
        if "paths" in negotiated and int(negotiated["paths"]) != len(each_path(options)):
            found.append(OptionMismatch("paths", str(len(each_path(options))), negotiated["paths"]))
        if "kato" in negotiated and negotiated["kato"] != str(options.keep_alive):
            found.append(OptionMismatch("keep_alive", str(options.keep_alive), negotiated["kato"]))
        return tuple(found)

    def collect_diagnostics(self, client: Host, options: NvmeTcp.Options) -> Mapping[str, str]:  # noqa: ARG002
        """Collect the state of every subsystem's paths and what the kernel last said."""
        return collect_diagnostics(client, {"subsystems": ["nvme", "list-subsys"]})


def parse_discovery(text: str) -> list[dict[str, Any]]:
    """Parse a discovery log in nvme-cli's JSON into options: subsystems over TCP, no discovery ones."""
    try:
        records = json.loads(text)["records"]
        found = [
            {"nqn": one["subnqn"], "port": int(one["trsvcid"])}
            for one in records
            if one["trtype"] == "tcp" and one["subtype"].startswith("nvme")
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [one for index, one in enumerate(found) if one not in found[:index]]


def connect_argv(options: NvmeTcp.Options, host_nqn: str, host_id: str) -> list[str]:
    """Build nvme-connect(1). A lost controller is tried again for the deadline, then its I/O fails."""
    argv = [
        "nvme",
        "connect",
        "--transport=tcp",
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
    """Parse the read-back's lines ``NAME:VALUE``."""
    lines = (line.partition(":")[::2] for line in text.splitlines())
    return {name: " ".join(value.split()) for name, value in lines}


def parse_negotiated(seen: Mapping[str, str], options: NvmeTcp.Options) -> dict[str, str]:
    """Say what sysfs tells of the controller.

    ``queue_count`` counts the admin queue too, and ``sqsize`` is zero-based (so the depth is one more), as in
    the kernel. Digests have no file there: a controller that is live has agreed to exactly those asked for,
    because the kernel breaks off where the controller's ICResp says otherwise (nvme_tcp_init_connection).
    """
    named = {key: seen[key] for key in _NEGOTIATED if seen.get(key)}
    digests = {"header_digest": options.header_digest, "data_digest": options.data_digest}
    paths = {"paths": str(live_paths(seen))} if options.more_paths else {}
    return {**named, **{key: "crc32c" if on else "none" for key, on in digests.items()}, **paths}


def live_paths(seen: Mapping[str, str]) -> int:
    """Return how many controllers are live, by the read-back's lines ``path-NAME:STATE``."""
    return sum(name.startswith("path-") and state == "live" for name, state in seen.items())


def error_from_output(done: Completed, options: NvmeTcp.Options, kernel: str) -> StoragetestError:
    """Make an error of nvme-cli's words, which differ by version, and of the kernel's last ones."""
    target = options.target_label
    text = (done.stderr.strip() or done.stdout.strip()).splitlines()
    said = text[-1] if text else ""
    where = f"(nvme connect on {done.host} says: {said}; its kernel: {' | '.join(kernel.splitlines())})"
    if "digest mismatch" in kernel:
        return OptionRefused(f"{target}: the target does not agree to these digests {where}")
    return AttachError(
        f"{target}: the target refuses the connection: does it have this NQN, and admit "
        f"{options.host_nqn or 'any host'}? {where}"
    )


def _connect_error(attaching: Attaching, options: NvmeTcp.Options, done: Completed) -> StoragetestError:
    """Find out whether the target said no or has died meanwhile: nvme-cli does not tell."""
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
    seen = _find(attaching, options, host_nqn)
    return seen["block"], parse_negotiated(seen, options)


def _find(attaching: Attaching, options: NvmeTcp.Options, host_nqn: str) -> dict[str, str]:
    """Wait for the namespace's disk and return what sysfs says of controller and disk."""
    seen: dict[str, str] = {}
    look = _script(QUERY, options, host_nqn, str(options.namespace), " ".join(("state", *_NEGOTIATED)))

    def there() -> bool:
        nonlocal seen
        seen = parse_query(attaching.run(look, check=True).stdout)
        return "block" in seen

    what = f"namespace {options.namespace} of {options.nqn} on {attaching.client.name}"
    try:
        wait_until(there, min(attaching.deadline.remaining(), SCAN_SECONDS), what)
    except DeadlineExceeded:
        if seen.get("state") != "live":
            raise
    else:
        return seen
    if f"namespace-{options.namespace}" in seen:
        wait_until(there, attaching.deadline.remaining(), f"a disk for {what}")
        return seen
    others = sorted(name.removeprefix("namespace-") for name in seen if name.startswith("namespace-"))
    msg = (
        f"{options.target_label}: connected, but the subsystem shows no namespace {options.namespace}; "
        f"it shows {', '.join(others) or 'none'}"
    )
    raise AttachError(msg)
