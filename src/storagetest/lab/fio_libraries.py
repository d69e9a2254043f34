"""Replace libraries that fio is linked to and that no load uses by stubs, in the tree of an image.

Debian's fio is linked to the libraries of Ceph, Gluster, NBD and persistent memory, and these to thirty
others. An emulated machine loads them for half a second in each start of fio, as long as all the rest of the
start takes. A stub has the name, symbols and symbol versions of its library, and no code. fio itself is
Debian's, unchanged; only its engines for these systems do not work in the lab.

    python -m storagetest.lab.fio_libraries ROOT
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from storagetest.errors import LabError
from storagetest.lab.subprocess_util import require, run

TOOLS = ("as", "ld", "readelf")
"""What this needs on the machine that builds the image."""

_PREFIXES = {
    "libgfapi.so.0": "glfs_",
    "libnbd.so.0": "nbd_",
    "libpmem.so.1": "pmem_",
    "libpmemblk.so.1": "pmemblk_",
    "librados.so.2": "rados_",
    "librbd.so.1": "rbd_",
}
"""Library -> how its symbols begin. Nothing else in an image is linked to these."""

# A line of `readelf --dyn-syms`: number, value, size, type, binding, visibility, UND, name[@version (n)]
_UNDEFINED = re.compile(r"\s*\d+: \S+\s+\d+ \S+\s+GLOBAL\s+\S+\s+UND (\w+)(?:@(\S+) \(\d+\))?\s*")
_TIMEOUT = 60.0  # seconds of one tool; chosen: each takes a tenth of a second


def undefined_symbols(listing: str) -> list[tuple[str, str]]:
    """Return (symbol, version) of what ``readelf --dyn-syms`` lists as undefined; the version may be ""."""
    matches = (_UNDEFINED.fullmatch(line) for line in listing.splitlines())
    return [(found[1], found[2] or "") for found in matches if found]


def version_script(symbols: Sequence[tuple[str, str]]) -> str:
    """Return a version script (ld(1), VERSION) that gives ``symbols`` their versions."""
    nodes: dict[str, list[str]] = {}
    for symbol, version in symbols:
        nodes.setdefault(version, []).append(symbol)
    return "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in nodes.items())


def replace(root: Path, prefixes: Mapping[str, str] = _PREFIXES) -> list[str]:
    """Replace those libraries in ``root`` that its fio is linked to; return their names. Raises LabError."""
    fio = root / "usr/bin/fio"
    symbols = undefined_symbols(run(["readelf", "--wide", "--dyn-syms", fio], timeout=_TIMEOUT))
    replaced = []
    for library, prefix in prefixes.items():
        used = [(symbol, version) for symbol, version in symbols if symbol.startswith(prefix)]
        for path in root.glob(f"usr/lib/*/{library}"):
            path.unlink()  # a symbolic link to the library
            _write_stub(path, used)
            replaced.append(library)
    return replaced


def _write_stub(path: Path, symbols: Sequence[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        versions, empty = Path(directory, "versions"), Path(directory, "empty.o")
        versions.write_text(version_script(symbols))
        run(["as", "-o", empty, "/dev/null"], timeout=_TIMEOUT)
        defined = [f"--defsym={symbol}=0" for symbol, _ in symbols]
        named = ["-shared", "-soname", path.name, f"--version-script={versions}"]
        run(["ld", *named, *defined, "-o", path, empty], timeout=_TIMEOUT)


def main(arguments: Sequence[str]) -> int:
    """Replace the libraries in the tree at the only argument, and try its fio."""
    root = Path(*arguments)
    try:
        require(TOOLS)
        replaced = replace(root)
        run(["chroot", root, "fio", "--version"], timeout=_TIMEOUT)
    except LabError as error:
        print(f"fio's libraries: {error}", file=sys.stderr)
        return 1
    print(f"fio's libraries: {len(replaced)} replaced by stubs", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
