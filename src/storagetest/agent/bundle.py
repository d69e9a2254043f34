"""Build the zip of this package that is sent to a client, and the command line that starts the agent.

Next to each source the zip has its compiled code, which a client with the controller's Python version imports
instead: a client that is emulated takes seconds to compile the sources. Other versions compile them.
"""

from __future__ import annotations

import io
import json
import marshal
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType
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
_PYC_HEADER = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
"""Header of compiled code that is not compared with its source (PEP 552: flags 1, and an unused hash).

An interpreter with another magic number imports the source.
"""


@cache
def packed() -> bytes:
    """Return the zip: sources, and their code for this Python."""
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
            sources[f"{prefix}/{entry.name}c"] = _PYC_HEADER + marshal.dumps(_code(entry))
    return sources


def _code(source: Traversable) -> CodeType:
    """Return the module's code, from Python's own cache if it has it."""
    if isinstance(source, Path):
        code = SourceFileLoader(source.stem, str(source)).get_code(source.stem)
        assert isinstance(code, CodeType)
        return code
    compiled: CodeType = compile(source.read_bytes(), source.name, "exec", dont_inherit=True)
    return compiled
