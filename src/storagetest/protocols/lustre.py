"""Lustre, mounted by a client's kernel (mount.lustre(8), lfs-setstripe(1))."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from storagetest.config.base import Size, TargetOptions
from storagetest.errors import AttachError, ClientLacks, OptionRefused, StoragetestError, TargetDead
from storagetest.hosts import Completed, Host
from storagetest.protocols import _lustre_layout as layouts
from storagetest.protocols import _lustre_lnet as networks
from storagetest.protocols._lustre_layout import Component, FileLayout
from storagetest.protocols._mount import parse_sections
from storagetest.protocols._preflight import check_client, collect_diagnostics
from storagetest.protocols.base import Attachment, Capability, ClientRequirements, OptionMismatch, register
from storagetest.protocols.template import Attaching, Mounted, MountedProtocol, MountRequest

PORT = 988
"""The acceptor's port (lnet's module parameter ``accept_port``)."""

SET_LAYOUT = r"""
directory=$1 starts=$2 pools=$3
shift 3
lfs setstripe "$@" "$directory" || exit 90
# Read the layout of a new file: the directory's is only its default, and a component has objects only when
# something is written in it.
file=$directory/.layout
touch "$file" || exit 91
for start in $starts; do
    dd if=/dev/zero of="$file" bs=1 count=1 seek="$start" conv=notrunc status=none || exit 91
done
echo "== layout"
lfs getstripe --yaml "$file" || exit 91
rm -f "$file"
for pool in $pools; do
    echo "== osts $pool"
    lfs pool_list "$pool" || exit 91
done
echo "== osts"
lfs osts "$directory" || exit 91
"""


def _layout(value: object) -> FileLayout:
    return layouts.parse_layout(value)


@register
class Lustre(MountedProtocol["Lustre.Options"]):
    """A Lustre file system, mounted by a client's kernel; a new directory has the requested layout."""

    name = "lustre"
    title = "Lustre"
    ports = (PORT,)

    class Options(TargetOptions):
        """A file system, the client's networks, and the striping of its files."""

        short: ClassVar[Mapping[str, str]] = {"stripe_count": "c", "stripe_size": "s", "stripe_offset": "i"}

        mgs: Annotated[str, AfterValidator(networks.check_nids)]
        """The NIDs of the MGS, such as ``10.0.0.1@tcp``. ``:`` separates failover partners,
        ``10.0.0.1@tcp:10.0.0.2@tcp``, and ``,`` several NIDs of one of them. A partner that does not
        respond is no error if another does."""

        fsname: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,7}$")]
        """The file system's name."""

        lnet: Annotated[str, AfterValidator(networks.check_networks)] | None = None
        """LNet networks of the client with their interfaces, as the kernel module's parameter ``networks``
        has them: ``tcp(eth0)``, or ``tcp(eth0,eth1)`` for two rails. An interface that is missing is added
        for the run; the networks named here may have no others. Without it the client's own setup."""

        conns_per_peer: Annotated[int, Field(ge=1, le=127)] | None = None
        """TCP connections to each peer and of each kind; needs ``lnet``. An interface that LNet has already
        keeps its number."""

        stripe_count: Annotated[int, Field(ge=-1, le=2000)] | None = None
        """OSTs that a file is spread over; -1 is all of them. Without it the file system's default."""

        stripe_size: Annotated[Size, Field(multiple_of=layouts.STRIPE_SIZE_UNIT, gt=0)] | None = None
        """Bytes on one OST before the file continues on the next; a multiple of 64 KiB."""

        stripe_offset: Annotated[int, Field(ge=-1, le=65535)] | None = None
        """Index of the OST that has a file's first stripe; -1, the default, lets the MDT choose."""

        pool: Annotated[str, Field(pattern=f"^{layouts.POOL}$")] | None = None
        """The OST pool that files are made in."""

        layout: (
            Annotated[
                FileLayout,
                PlainValidator(_layout),
                PlainSerializer(lambda layout: layout.text, return_type=str),
                WithJsonSchema({"type": "string"}),
            ]
            | None
        ) = None
        """A progressive layout, as the options of ``lfs setstripe``: ``-E 1M -c 1 -E eof -c 4``. A
        component takes ``-E``, ``-c``, ``-S``, ``-i`` and ``-p``; the first may be on the MDT (``-L mdt``).
        Not together with the four options of a plain layout."""

        flock: bool = True
        """Coherent locks among clients; false is ``noflock``."""

        @model_validator(mode="after")
        def _options_fit(self) -> Self:
            plain = ("stripe_count", "stripe_size", "stripe_offset", "pool")
            given = [name for name in plain if getattr(self, name) is not None]
            if self.layout is not None and given:
                raise ValueError(f"`layout` has its own {', '.join(given)}: give them in its components")
            if self.conns_per_peer is not None and self.lnet is None:
                raise ValueError("`conns_per_peer` needs `lnet`: the networks that have so many connections")
            return self

        @property
        def target_label(self) -> str:
            """Label of the target in messages."""
            return f"lustre {self.mgs}:/{self.fsname}"

        @property
        def components(self) -> tuple[Component, ...]:
            """The requested layout; a plain one is a single component."""
            if self.layout is not None:
                return self.layout.components
            count, size, offset = self.stripe_count, self.stripe_size, self.stripe_offset
            return (Component(None, count, size, offset, self.pool),)

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

    capability_names = frozenset({"filesystem", "shared", "locks", "layouts"})

    def capabilities(self, options: Lustre.Options) -> frozenset[Capability]:
        """Return the capabilities of the file system; ``locks`` with ``flock``."""
        return frozenset({"filesystem", "shared", "layouts"} | ({"locks"} if options.flock else set()))

    def needs(self, options: Lustre.Options) -> ClientRequirements:
        """Return Lustre's client, and the port of the first NID if all networks are TCP."""
        return ClientRequirements(
            tools=("mount.lustre", "lfs", *(("lnetctl",) if options.lnet else ())),
            modules=("lustre",),
            packages="Lustre's client (lustre-client-modules and lustre-client-utils)",
            address=next(iter(networks.tcp_addresses(options.mgs)), ""),
            port=PORT,
        )

    def check(self, attaching: Attaching, options: Lustre.Options) -> None:
        """Check the client's requirements, and that one of the NIDs accepts connections."""
        needs, unreachable = self.needs(options), []
        with attaching.step("checking the client and the port"):
            for address in networks.tcp_addresses(options.mgs) or ("",):
                try:
                    check_client(
                        attaching.client,
                        replace(needs, address=address),
                        target=attaching.target,
                        deadline=attaching.deadline.remaining(),
                    )
                except TargetDead as dead:
                    unreachable.append(str(dead))
                else:
                    return
        raise TargetDead("; ".join(unreachable))

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

    @contextmanager
    def acquire(self, attaching: Attaching, options: Lustre.Options) -> Iterator[Attachment]:
        """Set up the client's networks, then mount."""
        with (
            networks.added(attaching, options.lnet, options.conns_per_peer),
            super().acquire(attaching, options) as attachment,
        ):
            yield attachment

    def negotiated(self, attaching: Attaching, options: Lustre.Options, mount: Mounted) -> Mapping[str, str]:
        """Set the directory's layout; return the layout of a new file in it, and the networks in use."""
        components = options.components
        pools = sorted({f"{options.fsname}.{part.pool}" for part in components if part.pool is not None})
        words = (mount.directory, " ".join(map(str, layouts.starts(components))), " ".join(pools))
        argv = layouts.setstripe_argv(components, progressive=options.layout is not None)
        with attaching.step("setting the layout"):
            done = attaching.run(["sh", "-c", SET_LAYOUT, "storagetest-layout", *words, *argv])
        if not done.ok:
            raise _layout_error(done, options)
        return {**parse_negotiated(done.stdout), **networks.negotiated(attaching, options.lnet)}

    def requested(self, options: Lustre.Options) -> Mapping[str, object]:
        """Return the requested networks; the layout is compared by its components."""
        return {"lnet": networks.normal(options.lnet), "conns_per_peer": options.conns_per_peer}

    def option_mismatches(
        self, options: Lustre.Options, negotiated: Mapping[str, str]
    ) -> tuple[OptionMismatch, ...]:
        """Compare the networks, and every component of the layout."""
        osts = {
            name.partition(".")[2]: int(number)
            for name, number in negotiated.items()
            if name.partition(" ")[0] == "osts"
        }
        actual = layouts.from_negotiated(negotiated)
        found = layouts.mismatches(options.components, actual, osts)
        return (*super().option_mismatches(options, negotiated), *found)

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


def parse_negotiated(output: str) -> dict[str, str]:
    """Parse the script's sections: the layout of a file, and the numbers of OSTs, in all and of each pool."""
    sections = parse_sections(output)
    values = layouts.to_negotiated(layouts.parse_getstripe(sections.pop("layout", "")))
    return values | {name: str(layouts.count_osts(text)) for name, text in sections.items()}


def _layout_error(done: Completed, options: Lustre.Options) -> StoragetestError:
    output = " ".join((done.stderr.strip() or done.stdout.strip()).split())
    if done.status == 90:
        return OptionRefused(f"{options.target_label}: the file system rejects this layout: {output}")
    return AttachError(
        f"{options.target_label}: making a file with this layout on {done.host} failed: {output}"
    )
