"""Where each of many clients has its data: a set of its own, the one that all share, or a neighbour's. Pure.

Clients of one file system see the same names, each beneath its own mount point (``Attachment.root``). On a
device a set of its own is a region of its own. Readers are *rotated* when what is read is to be cold: each
reads what its neighbour wrote, so that what is left in its own cache is of no use to it (IOR's task
reordering does the same).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from storagetest.errors import WorkloadError
from storagetest.protocols.base import Attachment, AttachmentKind

__all__ = ["DataPlacement", "DataSharing", "place_data"]

DataSharing = Literal["own", "shared"]
"""Whose data set a client works on: its own, or the one that all share."""

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class DataPlacement:
    """Where a client works (``use``), and where it fills a data set first (None: it does not).

    ``origin`` is the attachment as it was made.
    """

    origin: Attachment
    use: Attachment
    fill: Attachment | None

    def key(self, dataset: str, size: int) -> str:
        """Return a key of a data set of ``size`` bytes that also tells where on the origin it lies."""
        fill = self.fill or self.use
        if fill.offset == self.origin.offset and min(fill.size, self.origin.size) >= 2 * size:
            return dataset  # as large as without other clients
        return f"{dataset} at {fill.offset} within {fill.size}"


def place_data(
    attachments: Sequence[Attachment], data: DataSharing, *, rotated: bool = False
) -> tuple[DataPlacement, ...]:
    """Return the place of each client. :class:`WorkloadError` where they would have to share, and cannot."""
    count = len(attachments)
    block = attachments[0].gives is AttachmentKind.BLOCK
    room = min(attachment.size for attachment in attachments)
    if data == "shared":
        same = [replace(each, size=room) for each in attachments]
        uses = same if block else [_seen(each, attachments[0]) for each in same]
        return tuple(
            DataPlacement(each, use, use if number == 0 else None)
            for number, (each, use) in enumerate(zip(attachments, uses, strict=True))
        )
    share = room // count // _MIB * _MIB
    if block:
        own = [replace(each, size=share, offset=number * share) for number, each in enumerate(attachments)]
        next_ = [replace(each, offset=(number + 1) % count * share) for number, each in enumerate(own)]
    else:
        own = [replace(each, size=share) for each in attachments]
        next_ = (
            [_seen(each, own[(number + 1) % count]) for number, each in enumerate(own)] if rotated else own
        )
    uses = next_ if rotated else own
    return tuple(DataPlacement(*each) for each in zip(attachments, uses, own, strict=True))


def _seen(mine: Attachment, other: Attachment) -> Attachment:
    """Return the directory of ``other`` as ``mine`` sees it."""
    if mine.client is other.client and mine.path == other.path:
        return mine
    if not (mine.root and other.root):
        raise WorkloadError(
            f"{mine.client.name} does not see what {other.client.name} has at {other.path}: nothing is shared"
        )
    return replace(mine, path=f"{mine.root}{other.path.removeprefix(other.root)}")
