"""Directories of many entries: as many as the file system gives space to.

A directory need not grow without end: "the directory that would contain the new file cannot be extended"
(POSIX.1-2024 open(), mkdir(), link(): [ENOSPC]; [EDQUOT] is that of a quota). FAT's root directory has 112 to
512 entries. A case goes on with the entries that there are.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

from storagetest.agent.fsutil import open_fd
from storagetest.agent.testlib.outcomes import record_observation, skip

LEAST_ENTRIES = 100
"""Entries that a directory has to take (chosen)."""


def is_full(error: OSError, entries: int) -> bool:
    """Return whether ``error`` is that of a directory of ``entries`` entries that cannot be extended.

    It is not with fewer than :data:`LEAST_ENTRIES`. Records the number.
    """
    if error.errno not in (errno.ENOSPC, errno.EDQUOT) or entries < LEAST_ENTRIES:
        return False
    record_observation(f"a directory has at most {entries} entries: {os.strerror(error.errno)}")
    return True


def make_many(
    directory: Path, names: Sequence[str], seconds: float | None = None, *, least: int | None = None
) -> list[str]:
    """Make empty files in ``directory``; return the names of those that it takes.

    Makes no more after ``seconds`` if there are ``least``; without ``least``, skips the case then.
    """
    until = None if seconds is None else time.monotonic() + seconds
    with open_fd(directory, os.O_RDONLY) as place:
        for made, name in enumerate(names):
            if until is not None and time.monotonic() > until and (least is None or made >= least):
                if least is not None:
                    return list(names[:made])
                skip(f"the target made {made} of {len(names)} entries in {seconds:g} s")
            try:
                os.mknod(name, dir_fd=place)
            except OSError as error:
                if not is_full(error, made):
                    raise
                return list(names[:made])
    return list(names)
