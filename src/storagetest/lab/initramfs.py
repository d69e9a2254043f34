"""The initramfs, made without root and without tools: a cpio writer and the order of the modules.

The kernel unpacks any number of cpio archives (format "newc", Documentation/driver-api/early-userspace/
buffer-format.rst) that stand behind one another, so there are two:

1. one that comes with the image: busybox and the few modules that lead to the root file system;
2. one that is made for each machine at each start: our init script and what only this machine knows (its
   name, addresses, keys, passwords, role). So neither a role nor a key ever rebuilds the image.

Nothing is compressed: under emulation unpacking costs more than reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from storagetest.errors import LabError

__all__ = ["File", "archive", "load_order", "normalised"]

_DIRECTORY, _REGULAR, _SYMLINK = 0o040000, 0o100000, 0o120000
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True, slots=True)
class File:
    """A file of an archive: its bytes and mode, or where it points when ``link`` is set."""

    data: bytes = b""
    mode: int = 0o644
    link: bool = False


def archive(files: Mapping[str, File]) -> bytes:
    """Return a cpio archive of ``files`` by relative path; parent directories are added."""
    entries = [(parent, _DIRECTORY | 0o755, b"") for parent in _parents(files)]
    for path, file in files.items():
        kind = _SYMLINK if file.link else _REGULAR
        entries.append((path, kind | (0o777 if file.link else file.mode), file.data))
    body = b"".join(_entry(number, *entry) for number, entry in enumerate(entries, 1))
    return body + _entry(0, _TRAILER, 0, b"")


def _parents(files: Iterable[str]) -> list[str]:
    found = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    return sorted(found - {".", "/"})


def _entry(inode: int, path: str, mode: int, data: bytes) -> bytes:
    name = path.encode() + b"\0"
    links = 2 if mode & _DIRECTORY and not mode & _REGULAR else 1
    # magic, then: ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
    numbers = (inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % number for number in numbers)
    return _padded(header + name) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def normalised(module: str) -> str:
    """Return the name the kernel knows a module by: no directory, no suffix, underscores."""
    return PurePosixPath(module).name.partition(".ko")[0].replace("-", "_")


def load_order(modules_dep: str, wanted: Iterable[str], builtin: str = "") -> list[str]:
    """Return the paths of ``wanted`` modules and of all they need, in an order in which they load.

    ``modules_dep`` is depmod's text: ``path: dependency dependency``, where the last is needed first.
    A module that ``builtin`` (the text of modules.builtin) names needs no loading.
    """
    needs: dict[str, list[str]] = {}
    paths: dict[str, str] = {}
    for line in modules_dep.splitlines():
        path, _, dependencies = line.partition(":")
        needs[path] = dependencies.split()
        paths[normalised(path)] = path
    inside = {normalised(path) for path in builtin.split()}
    order: dict[str, None] = {}
    for name in map(normalised, wanted):
        if name in inside:
            continue
        if name not in paths:
            raise LabError(f"the image's kernel has no module {name}")
        path = paths[name]
        order.update(dict.fromkeys([*reversed(needs[path]), path]))
    return list(order)
