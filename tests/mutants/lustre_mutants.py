"""Mutants of Lustre's coherence that the suite of two clients has not: caches that NFS and SMB may have.

Two mounts of one directory are a client each, and each has its own cache in the kernel. What Lustre's locks
keep coherent (mappings, programs that run, extended attributes) is not coherent there.
"""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

from fuse_passthrough import ROOT, Attributes, PassThrough
from fuse_protocol import Call
from posix_rules import mutant as enter
from shared_queue_mutants import MUTANTS as SHARED

MUTANTS = dict(SHARED)
mutant = partial(enter, table=MUTANTS, apart=True)


@mutant("maps-not-coherent | POSIX.1-2024 mmap() | a mapping does not show what another client writes")
class MapsNotCoherent(PassThrough):
    """Each mount has its own page cache, and no lock revokes it."""


@mutant(
    "running-programs-unknown | POSIX.1-2024 open() ETXTBSY | a client does not know what another executes"
)
class RunningProgramsUnknown(PassThrough):
    """Each mount knows its own programs."""


@mutant("directories-never-expire | readdir(3p), <sys/stat.h> | attributes of a directory are cached forever")
class DirectoriesNeverExpire(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.facts: dict[int, Attributes] = {}

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        is_directory = stat.S_ISDIR(os.fstat(self.fd(node)).st_mode)
        return self.facts.setdefault(node, found) if is_directory and node != ROOT else found

    def forget(self, node: int, times: int) -> None:
        """Keep every node: what is remembered of it would be another's."""


@mutant("xattr-never-expires | xattr(7) | extended attributes are cached forever after the first read")
class XattrNeverExpires(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.known: dict[tuple[Any, ...], Any] = {}

    def getxattr(self, call: Call, node: int, *arguments: Any) -> Any:
        return self._remember(
            ("get", node, *arguments), lambda: super(XattrNeverExpires, self).getxattr(call, node, *arguments)
        )

    def listxattr(self, call: Call, node: int, *arguments: Any) -> Any:
        return self._remember(
            ("list", node, *arguments),
            lambda: super(XattrNeverExpires, self).listxattr(call, node, *arguments),
        )

    def setxattr(self, call: Call, node: int, *arguments: Any) -> Any:
        self.known.clear()
        return super().setxattr(call, node, *arguments)

    def _remember(self, key: tuple[Any, ...], ask: Any) -> Any:
        if key not in self.known:
            self.known[key] = ask()
        return self.known[key]

    def forget(self, node: int, times: int) -> None:
        """Keep every node: what is remembered of it would be another's."""
