"""The space that cases on a mount need: a case that fails without it judges nothing.

POSIX.1-2024 write(): [ENOSPC], and a write of fewer bytes than were given, are what a full file system does.
"""

from __future__ import annotations

from storagetest.errors import StoragetestError
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.units import format_bytes

NEEDED = 64 << 20
"""Bytes that have to be free (chosen): the posix suite passes on a tmpfs of 48 MiB, not on one of 16 MiB."""
_SECONDS = 30.0
"""Timeout in seconds of each look (chosen); the write has a third less, and then its file is removed."""
_WRITE = """\
file=$1/.storagetest-space.$$
trap 'rm -f "$file"' EXIT
LC_ALL=C timeout 20 dd if=/dev/urandom of="$file" bs=65536 count=$(($2 / 65536)) conv=excl,fsync 2>&1
"""


def space_missing(attachment: Attachment) -> str:
    """Return that the file system has less than :data:`NEEDED` free, and that a write shows it; or "".

    A file system without blocks (f_blocks is 0) states nothing: statfs(2). One that states too little, and
    has the space, is not full.
    """
    if attachment.kind is not AttachmentKind.FILESYSTEM:
        return ""
    run, path = attachment.client.run, attachment.path
    try:
        look = run(["stat", "-f", "--format=%a %S %b", path], deadline=_SECONDS).stdout
        free, unit, blocks = map(int, look.split())
        if not blocks or free * unit >= NEEDED:
            return ""
        written = run(["sh", "-c", _WRITE, "sh", path, str(NEEDED)], deadline=_SECONDS, check=False).stdout
    except (StoragetestError, ValueError):
        return ""  # the failure stays one
    if "No space left on device" not in written and "Disk quota exceeded" not in written:
        return ""
    return (
        f"not judged: {path} has {format_bytes(free * unit)} free, and the cases need "
        f"{format_bytes(NEEDED)}. Free space on the target, and run again"
    )
