"""The resolution of a file system's times, and what a time is rounded to.

utimensat() sets "the greatest value supported by the file system that is not greater than" the given one, of
any resolution: FAT keeps st_atime by days of its time zone and st_mtime by two seconds, exFAT 10 ms, NTFS
100 ns. The resolution is measured for each of the two times, because no call returns it.
"""

from __future__ import annotations

import os
from functools import reduce
from math import gcd
from pathlib import Path
from typing import NamedTuple

SECOND = 10**9
DAY = 86_400 * SECOND
_PROBE = 1_234_567_890 * SECOND + 123_456_789
_COARSEST = (DAY, 2 * SECOND)
"""The coarsest known resolution of st_atime and of st_mtime, in ns: FAT's."""


class TimeUnit(NamedTuple):
    """Supported times are ``origin`` and all that differ from it by a multiple of ``step``, in ns."""

    step: int
    origin: int

    def floor(self, time: int) -> int:
        """Return the greatest supported time that is not greater than ``time``."""
        return time - (time - self.origin) % self.step


def time_units(path: Path) -> tuple[TimeUnit, TimeUnit]:
    """Measure the units of st_atime and st_mtime of a file, whose times are changed.

    Raises AssertionError if no resolution explains the times that are read.
    """
    first = _set(path, (_PROBE, _PROBE))
    if first == (_PROBE, _PROBE):
        return TimeUnit(1, 0), TimeUnit(1, 0)
    before = _set(path, (first[0] - 1, first[1] - 1))
    steps = [at - earlier for at, earlier in zip(first, before)]
    last = _set(path, (first[0] + steps[0] - 1, first[1] + steps[1] - 1))
    after = _set(path, (first[0] + steps[0], first[1] + steps[1]))
    units = []
    for each, name in enumerate(("st_atime", "st_mtime")):
        at, step = first[each], steps[each]
        rounded_down = at <= _PROBE < at + step and (last[each], after[each]) == (at, at + step)
        assert rounded_down and step <= _COARSEST[each], (  # noqa: PT018  # one explanation fits both
            f"{name} is {at} ns after utimensat() with {_PROBE} ns, {before[each]} ns with {at - 1} ns, "
            f"{last[each]} ns with {at + step - 1} ns: no resolution explains this"
        )
        units.append(TimeUnit(step, at % step))
    return units[0], units[1]


def _set(path: Path, given: tuple[int, int]) -> tuple[int, int]:
    os.utime(path, ns=given)
    found = os.stat(path)
    return found.st_atime_ns, found.st_mtime_ns


def coarsest_step(stamps: list[int]) -> int:
    """Return the coarsest usual resolution, in ns, that all of ``stamps`` fit."""
    shared = reduce(gcd, stamps, 0)
    usual: list[int] = [DAY, 2 * SECOND, *(10**power for power in range(9, -1, -1))]
    return next(step for step in usual if shared % step == 0)
