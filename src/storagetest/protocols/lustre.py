"""Lustre, mounted by a client's kernel (mount.lustre(8), lfs-setstripe(1))."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from storagetest.config.base import Size, TargetOptions
from storagetest.errors import AttachError, ClientLacks, OptionRefused, StoragetestError, TargetDead
from storagetest.hosts import Completed, Host
from storagetest.protocols._preflight import collect_diagnostics
from storagetest.protocols.base import Capability, ClientRequirements, register
from storagetest.protocols.template import Attaching, Mounted, MountedProtocol, MountRequest

PORT = 988
"""The acceptor's port (lnet's module parameter ``accept_port``)."""

LAYOUT = r"""
directory=$1
shift
lfs setstripe "$@" "$directory" || exit 90
# Read the layout of a new file: the directory's is only its default.
touch "$directory/.layout" || exit 91
lfs getstripe --yaml "$directory/.layout"
status=$?
rm -f "$directory/.layout"
exit $status
"""


@register
class Lustre(MountedProtocol["Lustre.Options"]):
    """A Lustre file system, mounted by a client's kernel; a new directory has the requested layout."""

    name = "lustre"
    title = "Lustre"
    ports = (PORT,)

    class Options(TargetOptions):
        """A file system, and the striping of its files."""

        short: ClassVar[Mapping[str, str]] = {"stripe_count": "c", "stripe_size": "s"}

        mgs: Annotated[str, Field(pattern=r"^\w[\w.-]*@[a-z0-9]+([,:]\w[\w.-]*@[a-z0-9]+)*$")]
        """The NID of the MGS, such as ``10.0.0.1@tcp``; ``:`` separates a failover partner's."""

        fsname: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,7}$")]
        """The file system's name."""

        stripe_count: Annotated[int, Field(ge=-1, le=2000)] | None = None
        """OSTs that a file is spread over; -1 is all of them. Without it the file system's default."""

        stripe_size: Annotated[Size, Field(multiple_of=65536, gt=0)] | None = None
        """Bytes on one OST before the file continues on the next; a multiple of 64 KiB."""

        pool: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,14}$")] | None = None
        """The OST pool that files are made in."""

        flock: bool = True
        """Coherent locks among clients; false is ``noflock``."""

        @property
        def target_label(self) -> str:
            """Label of the target in messages."""
            return f"lustre {self.mgs}:/{self.fsname}"

    searched: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "stripe_count": (1, 2, 4, -1),
        "stripe_size": ("256KiB", "1MiB", "4MiB", "16MiB"),
    }
    example: ClassVar[Mapping[str, Any]] = {
        "mgs": "10.0.0.1@tcp",
        "fsname": "scratch",
        "stripe_count": 4,
        "stripe_size": "1MiB",
    }

    capability_names = frozenset({"filesystem", "shared", "locks"})

    def capabilities(self, options: Lustre.Options) -> frozenset[Capability]:
        """Return the capabilities of the file system; ``locks`` with ``flock``."""
        return frozenset({"filesystem", "shared"} | ({"locks"} if options.flock else set()))

    def needs(self, options: Lustre.Options) -> ClientRequirements:
        """Return Lustre's client, and the MGS's port if its network is TCP."""
        first = re.split(r"[,:](?=[^@]*@)", options.mgs)[0]
        address, _, network = first.partition("@")
        return ClientRequirements(
            tools=("mount.lustre", "lfs"),
            modules=("lustre",),
            packages="Lustre's client (lustre-client-modules and lustre-client-utils)",
            address=address if network.startswith("tcp") else "",
            port=PORT,
        )

    def discover(self, client: Host, address: str, *, deadline: float) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002
        """Return the NID of an MGS at ``address``; an MGS lists its file systems only to mounted clients."""
        return [{"mgs": f"{address}@tcp"}] if ":" not in address else []

    def server(self, options: Lustre.Options) -> str:
        """Return the address in the MGS's NID."""
        return options.mgs.partition("@")[0]

    def mount_request(self, options: Lustre.Options) -> MountRequest:
        """Return the arguments of mount.lustre."""
        source = f"{options.mgs}:/{options.fsname}"
        return MountRequest("lustre", source, ["flock" if options.flock else "noflock"])

    def negotiated(self, attaching: Attaching, options: Lustre.Options, mount: Mounted) -> Mapping[str, str]:
        """Set the directory's layout, and return the layout of a new file in it."""
        script = ["sh", "-c", LAYOUT, "storagetest-layout", mount.directory]
        with attaching.step("setting the layout"):
            done = attaching.run([*script, *setstripe_options(options)])
        if not done.ok:
            raise _layout_error(done, options)
        return parse_negotiated(done.stdout)

    def requested(self, options: Lustre.Options) -> Mapping[str, object]:
        """Return the requested layout; -1 (all OSTs) and 0 (the default) request no specific number."""
        return {
            "stripe_count": options.stripe_count if (options.stripe_count or -1) > 0 else None,
            "stripe_size": options.stripe_size,
            "pool": options.pool,
        }

    def error_from_output(self, stderr: str, options: Lustre.Options, client: str) -> StoragetestError | None:
        """Return the error for mount.lustre's stderr, or None if the text is unknown."""
        target, where = options.target_label, f"(mount.lustre on {client}: {' '.join(stderr.split())})"
        if re.search(r"Is the MGS running|timed out|Cannot send after transport|Connection refused", stderr):
            return TargetDead(f"{target}: the MGS does not respond {where}")
        if re.search(r"Is the MGS specification correct|Invalid argument|No such file or directory", stderr):
            return AttachError(f"{target}: the MGS has no file system {options.fsname!r} {where}")
        if re.search(r"No such device|modules loaded", stderr):
            return ClientLacks(f"{target}: {client}'s Lustre modules or LNet networks are not set up {where}")
        return None

    def collect_diagnostics(self, client: Host, options: Lustre.Options) -> Mapping[str, str]:  # noqa: ARG002
        """Collect the devices, the imports' states and the kernel's last messages."""
        return collect_diagnostics(
            client, {"devices": ["lctl", "dl"], "imports": ["lctl", "get_param", "-n", "*.*.import"]}
        )


def setstripe_options(options: Lustre.Options) -> list[str]:
    """Build the options of lfs-setstripe(1); without any, the default layout (``-d`` would delete it)."""
    values = {
        "--stripe-count": options.stripe_count,
        "--stripe-size": options.stripe_size,
        "--pool": options.pool,
    }
    argv = [text for key, value in values.items() if value is not None for text in (key, str(value))]
    return argv or ["--stripe-count", "0"]


def parse_negotiated(layout: str) -> dict[str, str]:
    """Parse lfs-getstripe(1)'s YAML of a file: its first component's count, size, pattern and pool."""
    names = {
        "lmm_stripe_count": "stripe_count",
        "lmm_stripe_size": "stripe_size",
        "lmm_pattern": "pattern",
        "lmm_pool": "pool",
    }
    negotiated: dict[str, str] = {}
    for key, value in re.findall(r"(?m)^\s*(lmm_[a-z_]+):\s*(\S+)\s*$", layout):
        if key in names:
            negotiated.setdefault(names[key], value)
    return negotiated


def _layout_error(done: Completed, options: Lustre.Options) -> StoragetestError:
    output = " ".join((done.stderr.strip() or done.stdout.strip()).split())
    if done.status == 90:
        return OptionRefused(f"{options.target_label}: the file system rejects this layout: {output}")
    return AttachError(
        f"{options.target_label}: making a file with this layout on {done.host} failed: {output}"
    )
