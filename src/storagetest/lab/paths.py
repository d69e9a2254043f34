"""Where the lab keeps things: the XDG base directories, and nothing elsewhere.

The cache (images, packed overlays, the answer of the KVM probe) may be deleted at any time. The state holds
one directory for each lab that is up, and is empty when none is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from storagetest.errors import LabError

__all__ = ["cache_root", "check_name", "lab_dir", "package_root", "state_root", "tilde"]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / default


def cache_root() -> Path:
    """Return the directory of images and the like."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "storagetest" / "lab"


def state_root() -> Path:
    """Return the directory that holds one directory for each lab that is up."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "storagetest" / "lab"


def lab_dir(name: str) -> Path:
    """Return the state directory of the lab called ``name``."""
    return state_root() / check_name(name)


def check_name(name: str) -> str:
    """Return ``name`` if a lab may be called that."""
    if not _NAME.fullmatch(name):
        raise LabError(f"a lab's name has up to 32 lower-case letters, digits and dashes: not {name!r}")
    return name


def package_root() -> Path:
    """Return the directory that holds the ``storagetest`` package, for a child's PYTHONPATH."""
    return Path(__file__).parents[2]


def tilde(path: Path) -> str:
    """Write ``path`` with ``~`` where it lies in the home directory: the same text on every machine."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)
