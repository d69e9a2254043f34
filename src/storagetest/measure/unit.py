"""The base units that values are kept in."""

from __future__ import annotations

from enum import Enum


class Unit(Enum):
    """The base units that values are kept in; :mod:`storagetest.units` prints them for people."""

    BYTES = "B"
    BYTES_PER_SECOND = "B/s"
    PER_SECOND = "/s"
    SECONDS = "s"
    RATIO = "ratio"
    COUNT = "count"
