"""Storage that the client has already: a directory, or a block device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from storagetest.config.base import BlockOptions
from storagetest.errors import AttachError
from storagetest.protocols._acquire import LEFT_ON_TARGET, WITHIN, new_id
from storagetest.protocols._block_device import block_capabilities, leased_device, required_tools
from storagetest.protocols._mount import parse_mountinfo, parse_sections
from storagetest.protocols.base import Attachment, AttachmentKind, Capability, ClientRequirements, register
from storagetest.protocols.template import Attaching, KernelProtocol

__all__ = ["Local"]

MAKE = r"""
mkdir "$1/$2" || exit 91
echo "== size"
stat -f -c '%a %S' "$1/$2"
echo "== mount"
findmnt --noheadings --output TARGET --target "$1/$2"
echo "== mountinfo"
cat /proc/self/mountinfo
"""

REMOVE = (
    WITHIN
    + f"""
within "$2" rm -rf --one-file-system "$1"
tail -n 3 "$log"
[ ! -e "$1" ] || exit {LEFT_ON_TARGET}
"""
)


@register
class Local(KernelProtocol["Local.Options"]):
    """A directory or a block device of the client's own, as a yardstick or to try things out.

    A directory gets a subdirectory of ours, removed afterwards. A block device follows the same rules of
    data safety as one from the network.
    """

    name = "local"
    title = "Local"
    attachment_kind = AttachmentKind.FILESYSTEM

    class Options(BlockOptions):
        """Either ``path`` or ``device``."""

        path: Annotated[str | None, Field(pattern=r"^/")] = None
        """A directory on the client in which a subdirectory of our own is made."""

        device: Annotated[str | None, Field(pattern=r"^/dev/")] = None
        """A whole block device on the client; ``erase`` must name it. A loop device is known by its file."""

        @property
        def target_label(self) -> str:
            """The target as messages name it."""
            return f"local {self.path or self.device}"

        @model_validator(mode="after")
        def _one_of_both(self) -> Self:
            if (self.path is None) == (self.device is None):
                msg = "a local target has either `path` (a directory) or `device` (a block device)"
                raise ValueError(msg)
            if self.path is not None and (self.erase or self.filesystem):
                msg = "`erase` and `filesystem` belong to a `device`, not to a `path`"
                raise ValueError(msg)
            return self

    example: ClassVar[Mapping[str, Any]] = {"path": "/var/tmp"}  # noqa: S108  # an example, not a file of ours

    def capabilities(self, options: Local.Options) -> frozenset[Capability]:
        """Return ``filesystem`` and ``locks`` for a directory, else what the device gives."""
        return block_capabilities(options) if options.device else frozenset({"filesystem", "locks"})

    def needs(self, options: Local.Options) -> ClientRequirements:
        """Return what lending a device takes; a directory takes nothing."""
        wanted = tuple(required_tools(options)) if options.device else ()
        return ClientRequirements(tools=wanted, packages="python3, util-linux, e2fsprogs, xfsprogs")

    def server(self, options: Local.Options) -> str:  # noqa: ARG002
        """Return ``local``: the client serves itself."""
        return "local"

    def check(self, attaching: Attaching, options: Local.Options) -> None:
        """Check the client's tools for a device; a directory takes nothing."""
        if options.device is not None:
            super().check(attaching, options)

    @contextmanager
    def acquire(self, attaching: Attaching, options: Local.Options) -> Iterator[Attachment]:
        """Make the own subdirectory, or lend the device."""
        if options.device is not None:
            with leased_device(attaching, options.device, options, {}) as attachment:
                yield attachment
            return
        parent, own = str(options.path), new_id()
        path = f"{parent}/{own}"
        remove = ["bash", "-c", REMOVE, "storagetest-remove", path]
        with attaching.acquire(f"directory {path}", lambda seconds: [*remove, str(seconds)]):
            with attaching.step("making a directory"):
                done = attaching.run(["sh", "-c", MAKE, "storagetest-make", parent, own])
            if not done.ok:
                msg = f"{attaching.target}: no directory can be made there on {attaching.client.name}: "
                raise AttachError(msg + done.stderr.strip())
            yield _own_directory(attaching, path, parse_sections(done.stdout))


def _own_directory(attaching: Attaching, path: str, sections: Mapping[str, str]) -> Attachment:
    free, unit = sections["size"].split()
    entries = [e for e in parse_mountinfo(sections["mountinfo"]) if e.point == sections["mount"].strip()]
    negotiated = {"fstype": entries[-1].fstype, "source": entries[-1].source} if entries else {}
    size = int(free) * int(unit)
    return Attachment(attaching.client, path, AttachmentKind.FILESYSTEM, size, negotiated, remote=False)
