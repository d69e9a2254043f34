"""Place the data of each client: a data set of its own, a shared one, or that of the next client. Pure.

Clients of one file system see the same names, each below its own mount point (``Attachment.root``). On a
device a data set of its own is a region. Readers are *rotated* for cold reads: each client reads what the
next one wrote, so its own page cache does not hold it (IOR's task reordering does the same).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from storagetest.errors import WorkloadError
from storagetest.protocols.base import Attachment, AttachmentKind

DataSharing = Literal["own", "shared"]
"""Whether each client works on a data set of its own, or all on a shared one."""

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class DataPlacement:
    """Where a client works (``use``), and where it writes a data set first (``fill``; None: it does not).

    ``origin`` is the attachment as it was made.
    """

    origin: Attachment
    use: Attachment
    fill: Attachment | None

    def key(self, dataset: str, size: int) -> str:
        """Return the key of a data set of ``size`` bytes, which includes its location on the origin."""
        fill = self.fill or self.use
        if fill.offset == self.origin.offset and min(fill.size, self.origin.size) >= 2 * size:
            return dataset  # as large as with one client
        return f"{dataset} at {fill.offset} within {fill.size}"


def place_data(
    attachments: Sequence[Attachment], data: DataSharing, *, rotated: bool = False
) -> tuple[DataPlacement, ...]:
    """Return the placement of each client.

    Raises :class:`WorkloadError` if clients have to share data and do not see the same files.
    """
    count = len(attachments)
    block = attachments[0].kind is AttachmentKind.BLOCK
    space = min(attachment.size for attachment in attachments)
    if data == "shared":
        same = [replace(each, size=space) for each in attachments]
        uses = same if block else [_same_dir(each, attachments[0]) for each in same]
        return tuple(
            DataPlacement(each, use, use if number == 0 else None)
            for number, (each, use) in enumerate(zip(attachments, uses, strict=True))
        )
    share = space // count // _MIB * _MIB
    own = [
        replace(each, size=share, offset=number * share if block else each.offset)
        for number, each in enumerate(attachments)
    ]
    uses = own
    if rotated:
        uses = [
            replace(each, offset=next_.offset) if block else _same_dir(each, next_)
            for each, next_ in zip(own, [*own[1:], own[0]], strict=True)
        ]
    return tuple(DataPlacement(*each) for each in zip(attachments, uses, own, strict=True))


def _same_dir(mine: Attachment, other: Attachment) -> Attachment:
    """Return the directory of ``other`` as the client of ``mine`` sees it."""
    if mine.client is other.client and mine.path == other.path:
        return mine
    if not (mine.root and other.root):
        raise WorkloadError(
            f"{mine.client.name} does not see {other.path} of {other.client.name}: they share no data"
        )
    return replace(mine, path=f"{mine.root}{other.path.removeprefix(other.root)}")
