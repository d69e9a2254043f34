"""Sequences of attributes (:mod:`storagetest.wire.sequences.attributes`) as calls of NFSv3."""

from __future__ import annotations

from collections.abc import Mapping

from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.types import fattr3, nfs_fh3, nfstime3

SECOND = 1_000_000_000


class Nfs3Attributes:
    """Attributes of files."""

    def __init__(self, nfs: Nfs3Client, files: list[nfs_fh3]) -> None:
        self.nfs, self.files = nfs, files

    def set(self, file: int, values: Mapping[str, int]) -> None:
        """SETATTR (3.3.2); the attributes after it, if there are any, are those of GETATTR."""
        times = {
            name: nfstime3(*divmod(values[name], SECOND)) for name in ("atime", "mtime") if name in values
        }
        new = attributes(mode=values.get("mode"), size=values.get("size"), **times)
        after = ok(self.nfs.setattr(self.files[file], new)).obj_wcc.after
        if after is not None:
            found = self._shown(after)
            wrong = [name for name, value in values.items() if name not in times and found[name] != value]
            assert not wrong, f"the attributes after SETATTR have another {wrong[0]}: {found}"

    def get(self, file: int) -> dict[str, int]:
        """GETATTR (3.3.1)."""
        return self._shown(self.nfs.attributes(self.files[file]))

    @staticmethod
    def _shown(found: fattr3) -> dict[str, int]:
        return {
            "mode": found.mode & 0o7777,
            "size": found.size,
            "atime": found.atime.seconds * SECOND + found.atime.nseconds,
            "mtime": found.mtime.seconds * SECOND + found.mtime.nseconds,
        }
