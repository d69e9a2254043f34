"""Mutants of files that have much of everything: what no longer fits is lost.

The rule: link(), setxattr(), write() and mkdir() add what they are asked for, and take nothing away.
"""

import os
from contextlib import suppress

from fuse_passthrough import PassThrough
from fuse_protocol import Call, Created
from posix_rules import mutant

LINKS, ATTRIBUTES, ENTRIES = 16, 8, 60


class Losing(PassThrough):
    """``lose`` removes an attribute of a file in the directory below."""

    def lose(self, path: str) -> None:
        names = sorted(name for name in os.listxattr(path) if name.startswith("user."))
        if len(names) > ATTRIBUTES:
            self.reset_ids()
            os.removexattr(path, names[0])


@mutant(
    "crowded-file-loses-attribute | link(3p), setxattr(2) | a file of many links and attributes loses one"
)
class CrowdedFileLosesAttribute(Losing):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        made = super().link(call, old, parent, name)
        self.look(old)
        return made

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(call, node, name, value, flags)
        self.look(node)

    def look(self, node: int) -> None:
        if os.fstat(self.fd(node)).st_nlink > LINKS:
            self.lose(self.nodes[node].path)


@mutant(
    "crowded-directory-loses-attribute | open(3p), mknod(3p) | a directory of many entries loses an attribute"
)
class CrowdedDirectoryLosesAttribute(Losing):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        made = super().create(call, parent, name, flags, mode, umask)
        with suppress(OSError):
            if len(os.listdir(self.nodes[parent].path)) > ENTRIES:
                self.lose(self.nodes[parent].path)
        return made
