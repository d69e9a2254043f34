"""Build the zip of this package that is sent to a client, and the command line that starts the agent."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

OLDEST_PYTHON = (3, 9)
"""The oldest Python that the agent runs on."""

# One statement per line, and no syntax that an old Python cannot compile: it has to print its version.
START = (
    "import sys\n"
    f"if sys.version_info < {OLDEST_PYTHON}:\n"
    ' print(\'{"t":"error","kind":"python","message":"%d.%d"}\' % sys.version_info[:2]); sys.exit(1)\n'
    "import os\n"
    "i = sys.stdin.buffer\n"
    "f = os.memfd_create('storagetest-agent')\n"
    "with open(f, 'wb', closefd=False) as o: o.write(i.read(int(i.readline())))\n"
    "sys.path.insert(0, '/proc/self/fd/%d' % f)\n"
    "from storagetest.agent.__main__ import main\n"
    "sys.exit(main())\n"
)
"""The program for ``python3 -I -S -c``: takes the zip from stdin into memory and imports from there."""

# -I and -S: neither the user's environment nor installed packages matter, and it starts in half the time.
ARGV = ("python3", "-I", "-S", "-c", START)
"""The command line of an agent."""

_EXCLUDED = {"bundle.py"}
_EPOCH = (1980, 1, 1, 0, 0, 0)


@cache
def packed() -> bytes:
    """Return the zip. Its bytes depend only on the source."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("storagetest/__init__.py", _EPOCH), b"")
        for name, data in sorted(_sources(files("storagetest.agent"), "storagetest/agent").items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return buffer.getvalue()


def message(request: Mapping[str, Any]) -> bytes:
    """Return the stdin of :data:`START`: the zip's length, the zip, and the request."""
    program = packed()
    return b"%d\n%b%b" % (len(program), program, json.dumps(request).encode())


def _sources(folder: Traversable, prefix: str) -> dict[str, bytes]:
    sources: dict[str, bytes] = {}
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            sources.update(_sources(entry, f"{prefix}/{entry.name}"))
        elif entry.name.endswith(".py") and entry.name not in _EXCLUDED:
            sources[f"{prefix}/{entry.name}"] = entry.read_bytes()
    return sources
