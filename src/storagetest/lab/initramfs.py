"""Write the initramfs without root and without external tools: a cpio writer and the modules' load order.

The kernel unpacks several concatenated cpio archives (format "newc",
Documentation/driver-api/early-userspace/buffer-format.rst). There are two:

1. the image's part: busybox and the modules for the root file system;
2. the machine's part, written at each start: the init script, name, addresses, keys, passwords and services.
   So a change of a role's scripts or of keys needs no new image.

They are not compressed, because under emulation decompression takes longer than reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from storagetest.errors import LabError

_DIRECTORY, _REGULAR, _SYMLINK = 0o040000, 0o100000, 0o120000
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True, slots=True)
class File:
    """A file in an archive: content and mode. With ``link``, ``data`` is the target of a symbolic link."""

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
    """Return the module name that the kernel uses: no directory, no suffix, underscores."""
    return PurePosixPath(module).name.partition(".ko")[0].replace("-", "_")


def load_order(modules_dep: str, wanted: Iterable[str], builtin: str = "") -> list[str]:
    """Return the paths of the ``wanted`` modules and of their dependencies, in load order.

    ``modules_dep`` is the text of modules.dep: ``path: dependency dependency``, the last dependency loads
    first. ``builtin`` is the text of modules.builtin; its modules are skipped.
    """
    dependencies_of: dict[str, list[str]] = {}
    paths: dict[str, str] = {}
    for line in modules_dep.splitlines():
        path, _, dependencies = line.partition(":")
        dependencies_of[path] = dependencies.split()
        paths[normalised(path)] = path
    built_in = {normalised(path) for path in builtin.split()}
    order: dict[str, None] = {}
    for name in map(normalised, wanted):
        if name in built_in:
            continue
        if name not in paths:
            raise LabError(f"image: its kernel has no module {name}")
        path = paths[name]
        order.update(dict.fromkeys([*reversed(dependencies_of[path]), path]))
    return list(order)
