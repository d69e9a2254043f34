"""Local storage of the client: a directory or a block device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from storagetest.config.base import BlockOptions
from storagetest.errors import AttachError
from storagetest.protocols._acquire import LEFT_ON_TARGET, REMOVAL_SECONDS, STALLED_SECONDS, WITHIN, new_id
from storagetest.protocols._block_device import block_capabilities, leased_device, required_tools
from storagetest.protocols._mount import PLAIN, parse_mountinfo, parse_sections
from storagetest.protocols.base import Attachment, AttachmentKind, Capability, ClientRequirements, register
from storagetest.protocols.template import Attaching, KernelProtocol

MAKE = (
    PLAIN
    + r"""
mkdir "$1/$2" || exit 91
plain "$1/$2"
echo "== size"
stat -f -c '%a %S' "$1/$2"
echo "== mount"
findmnt --noheadings --output TARGET --target "$1/$2"
echo "== mountinfo"
cat /proc/self/mountinfo
"""
)

REMOVE = (
    WITHIN
    + f"""
remove "$2" "$3" "$1"
status=$?
tail -n 3 "$log"
[ -e "$1" ] || exit 0
case $status in 124 | 137) exit 1 ;; esac  # another attempt gets further
exit {LEFT_ON_TARGET}
"""
)


@register
class Local(KernelProtocol["Local.Options"]):
    """A directory or a block device of the client, as a reference or for trials.

    In a directory, storagetest makes a subdirectory and removes it afterwards. A block device follows the
    same data safety rules as a network device.
    """

    name = "local"
    title = "Local"
    attachment_kind = AttachmentKind.FILESYSTEM

    class Options(BlockOptions):
        """Either ``path`` or ``device``."""

        path: Annotated[str | None, Field(pattern=r"^/")] = None
        """A directory on the client, in which storagetest makes a subdirectory."""

        posix: bool = True
        """False: the file system has no owners, modes and links, as vfat: their cases are skipped."""

        lock: bool = True
        """False: the file system has no locks (fcntl() is EINVAL or ENOLCK): their cases are skipped."""

        device: Annotated[str | None, Field(pattern=r"^/dev/")] = None
        """A whole block device on the client; ``erase`` must name it. A loop device's is its file."""

        @property
        def target_label(self) -> str:
            """Label of the target in messages."""
            return f"local {self.path or self.device}"

        @model_validator(mode="after")
        def _one_of_both(self) -> Self:
            if (self.path is None) == (self.device is None):
                raise ValueError("give either `path` (a directory) or `device` (a block device)")
            if self.path is not None and (self.erase or self.filesystem):
                raise ValueError("`erase` and `filesystem` are for a `device`, not for a `path`")
            return self

    example: ClassVar[Mapping[str, Any]] = {"path": "/var/tmp"}  # noqa: S108  # an example, not a file of ours

    capability_names = frozenset({"filesystem", "block", "locks"})

    def capabilities(self, options: Local.Options) -> frozenset[Capability]:
        """Return ``filesystem`` for a directory, and ``locks`` unless it has none; or those of the device."""
        if options.device:
            return block_capabilities(options)
        return frozenset({"filesystem", "locks"} if options.lock else {"filesystem"})

    def needs(self, options: Local.Options) -> ClientRequirements:
        """Return the tools for a device; a directory has no requirements."""
        tools = tuple(required_tools(options)) if options.device else ()
        return ClientRequirements(tools=tools, packages="python3, util-linux, e2fsprogs, xfsprogs")

    def server(self, options: Local.Options) -> str:  # noqa: ARG002
        """Return ``local``: the client is its own server."""
        return "local"

    def check(self, attaching: Attaching, options: Local.Options) -> None:
        """Check the client's tools for a device; a directory has no requirements."""
        if options.device is not None:
            super().check(attaching, options)

    @contextmanager
    def acquire(self, attaching: Attaching, options: Local.Options) -> Iterator[Attachment]:
        """Make the subdirectory, or lease the device."""
        if options.device is not None:
            with leased_device(attaching, options.device, options, {}) as attachment:
                yield attachment
            return
        parent, name = str(options.path), new_id()
        path = f"{parent}/{name}"

        def release(seconds: int) -> list[str]:
            stalled = min(STALLED_SECONDS, seconds)
            return ["bash", "-c", REMOVE, "storagetest-remove", path, str(stalled), str(seconds)]

        with attaching.acquire(f"directory {path}", release, REMOVAL_SECONDS):
            with attaching.step("making a directory"):
                done = attaching.run(["sh", "-c", MAKE, "storagetest-make", parent, name])
            if not done.ok:
                msg = f"{attaching.target}: making a directory on {attaching.client.name} failed: "
                raise AttachError(msg + done.stderr.strip())
            yield _directory_attachment(attaching, path, parse_sections(done.stdout))


def _directory_attachment(attaching: Attaching, path: str, sections: Mapping[str, str]) -> Attachment:
    free, unit = sections["size"].split()
    entries = [e for e in parse_mountinfo(sections["mountinfo"]) if e.point == sections["mount"].strip()]
    negotiated = {"fstype": entries[-1].fstype, "source": entries[-1].source} if entries else {}
    size = int(free) * int(unit)
    return Attachment(attaching.client, path, AttachmentKind.FILESYSTEM, size, negotiated, remote=False)
