"""A load of one's own as a Python function: many small files written, and read back by a client's own tar."""

from __future__ import annotations

from storagetest.protocols.base import Attachment
from storagetest.workloads.base import LoadSize

FILES = 200


def run(attachment: Attachment, scale: LoadSize) -> dict[str, float]:
    """Make a tree of small files on the target and pack it: how fast is the one, how long takes the other."""
    where = f"{attachment.path}/own-{scale.repeat}"
    make = f'mkdir "$1" && cd "$1" && for i in $(seq {FILES}); do echo "$i" > "$i"; done && sync -f .'
    written = attachment.client.run(["sh", "-c", make, "make", where], deadline=300)
    read = attachment.client.run(["tar", "-cf", "/dev/null", "-C", where, "."], deadline=300)
    attachment.client.run(["rm", "-r", where], deadline=300)
    return {"written": FILES / written.seconds, "packing_time": read.seconds}
