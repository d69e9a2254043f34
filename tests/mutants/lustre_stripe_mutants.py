"""Mutants of files over several objects: stripes of 64 KiB, and components of 1 MiB that a write allocates.

Without a page cache, so that each read reaches the file system.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fuse_protocol import Call, Created, Opened
from lustre_group_mutants import MUTANTS
from lustre_groups import Groups
from posix_rules import mutant as enter

mutant = partial(enter, table=MUTANTS)
STRIPE = 64 << 10
COMPONENT = 1 << 20


@mutant("stripe-end-lost | lfs-setstripe(1) | of a write over the end of a stripe, the rest is lost")
class StripeEndLost(Groups):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        super().write(call, node, handle, offset, data[: STRIPE - offset % STRIPE])
        return len(data)


@mutant("stripes-exchanged | lfs-setstripe(1) | what is written in a stripe is read in its neighbour")
class StripesExchanged(Groups):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        return super().write(call, node, handle, offset ^ STRIPE, data)


class _KnownLayout(Groups):
    """Knows how many components had data when a file was opened: a layout that no lock revokes."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.known: dict[int, int] = {}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.known[opened.handle] = self.components(node)
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self.known[opened.handle] = 1
        return node, opened

    def components(self, node: int) -> int:
        return 1 + Path(self.nodes[node].path).stat().st_size // COMPONENT

    def is_known(self, handle: int, offset: int) -> bool:
        return offset // COMPONENT < self.known[handle]


@mutant("component-not-read | Progressive File Layout | an open file does not read a component that is new")
class ComponentNotRead(_KnownLayout):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        known = self.is_known(handle, offset)
        return super().read(call, node, handle, offset, size) if known else b""


@mutant(
    "component-not-written | Progressive File Layout | an open file loses writes in a component that is new"
)
class ComponentNotWritten(_KnownLayout):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        known = self.is_known(handle, offset)
        return super().write(call, node, handle, offset, data) if known else len(data)


def names() -> list[str]:
    """Return the names of this module's mutants."""
    return [name for name, one in MUTANTS.items() if one.files.startswith(f"{__name__}:")]
