"""What a call does to the attributes of the files around it: a table of effects, and the comparison with it.

A call has an effect on some attributes of some files, and none on all others. :func:`check_effects` takes the
attributes of every watched file before and after a call, with a step of the target's clock in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storagetest.agent.testlib.tmpfiles import wait_clock_tick

MARKED, KEPT, ANY = "marked", "kept", "any"
"""What may happen to a time stamp: it has to become the present, has to stay, may do either."""

FIELDS = ("st_ino", "st_mode", "st_nlink", "st_uid", "st_gid", "st_size")


@dataclass(frozen=True)
class Effect:
    """The effect on one file: of ``st_mtime``, of ``st_ctime``, and new values of other attributes.

    ``values``: attribute → value, or None if any value is legal.
    """

    mtime: str = KEPT
    ctime: str = KEPT
    values: Mapping[str, int | None] = field(default_factory=dict)

    def after(self, earlier: Effect) -> Effect:
        """Return the effect of this call and an ``earlier`` one on the time stamps: a mark stays one."""
        return Effect(_later(earlier.mtime, self.mtime), _later(earlier.ctime, self.ctime))


def _later(first: str, second: str) -> str:
    return MARKED if MARKED in (first, second) else ANY if ANY in (first, second) else KEPT


DATA = Effect(MARKED, MARKED)
"""Data or entries have changed."""
STATUS = Effect(KEPT, MARKED)
"""Only the status has changed."""


def attributes(path: Path) -> os.stat_result:
    """Return the attributes; of a regular file through an open, which revalidates what a client caches."""
    one = os.lstat(path)
    if not stat.S_ISREG(one.st_mode):
        return one
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def check_effects(
    name: str,
    call: Callable[[], Any],
    watched: Mapping[str, Path],
    effects: Mapping[str, Effect],
    *,
    moved: Mapping[str, Path],
    clock: Path,
) -> None:
    """Make ``call`` and assert its ``effects`` on the ``watched`` files, by name; others keep all attributes.

    ``moved``: where a watched file is after the call. ``clock``: a directory of the target of its own.
    """
    before = {key: attributes(path) for key, path in watched.items()}
    tick = wait_clock_tick(clock)
    call()
    problems = []
    for key, path in watched.items():
        after = attributes(moved.get(key, path))
        problems += [
            f"{key}: {problem}"
            for problem in _differences(before[key], after, effects.get(key, Effect()), tick)
        ]
    assert not problems, f"{name}: {'; '.join(problems)}"


def _differences(old: os.stat_result, new: os.stat_result, effect: Effect, tick: int) -> list[str]:
    found = []
    for attribute in FIELDS:
        if (
            attribute in ("st_size", "st_nlink")
            and stat.S_ISDIR(old.st_mode)
            and attribute not in effect.values
        ):
            continue  # of a directory, both depend on its entries, as the file system likes
        wanted = effect.values.get(attribute, getattr(old, attribute))
        value = getattr(new, attribute)
        if wanted is not None and value != wanted:
            found.append(
                f"{attribute} is {_shown(attribute, value)} and has to be {_shown(attribute, wanted)}"
            )
    for attribute, what in (("st_mtime", effect.mtime), ("st_ctime", effect.ctime)):
        was, now = getattr(old, f"{attribute}_ns"), getattr(new, f"{attribute}_ns")
        if what == KEPT and was != now:
            found.append(f"{attribute} is changed by {(now - was) / 1e9:g} s and has to stay")
        if what == MARKED and (now <= tick or now == was):
            found.append(f"{attribute} is not marked: {(tick - now) / 1e9:g} s before the call")
    return found


def _shown(attribute: str, value: int) -> str:
    return f"{value:#o}" if attribute == "st_mode" else str(value)
