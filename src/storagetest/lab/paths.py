"""Directories of the lab, below the XDG base directories.

The cache (images, packed overlays, the result of the KVM test) may be deleted at any time. The state
directory contains one directory per running lab.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from storagetest.errors import LabError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / default


def cache_root() -> Path:
    """Return the cache directory."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "storagetest" / "lab"


def state_root() -> Path:
    """Return the directory with one directory per running lab."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "storagetest" / "lab"


def lab_dir(name: str) -> Path:
    """Return the state directory of the lab called ``name``."""
    return state_root() / check_name(name)


def check_name(name: str) -> str:
    """Return ``name``. Raises :class:`LabError` if it is not a valid lab name."""
    if not _NAME.fullmatch(name):
        raise LabError(f"invalid lab name {name!r}: use up to 32 lower-case letters, digits and dashes")
    return name


def package_root() -> Path:
    """Return the directory that contains the ``storagetest`` package, for a child's PYTHONPATH."""
    return Path(__file__).parents[2]


def shorten_home(path: Path) -> str:
    """Return ``path`` with ``~`` for the home directory."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)
