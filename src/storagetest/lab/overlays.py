"""Overlay: a directory tree of the user, mounted over the image, for files that Debian does not package.

The tree is packed into a second squashfs, which the machines mount over the image with overlayfs. If it
contains kernel modules, depmod runs over the modules of both, and its tables go into the overlay. The cache
stores the packed overlay under the hashes of the tree and of the image.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storagetest.errors import LabError
from storagetest.lab.image import Image
from storagetest.lab.paths import cache_root
from storagetest.lab.subprocess_util import require, run

MODULES = Path("usr/lib/modules")
# Symbolic links to usr/… in the image: a directory of that name in an overlay would hide the link's target.
_LINKS = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")


@dataclass(frozen=True, slots=True)
class Overlay:
    """A directory tree and the hash of its content and modes."""

    path: Path
    hash: str


def describe(path: Path) -> Overlay:
    """Return the overlay at ``path``. Raises :class:`LabError` if the tree is not usable."""
    if not path.is_dir():
        raise LabError(f"--overlay {path}: not a directory")
    if hidden := [name for name in _LINKS if (path / name).is_dir()]:
        raise LabError(
            f"--overlay {path}: {hidden[0]}/ would hide the image's own. Move its files to usr/{hidden[0]}/."
        )
    digest = hashlib.sha256()
    for file in _walk(path):
        facts = file.lstat()
        digest.update(f"{file.relative_to(path)}\0{facts.st_mode:o}\0".encode())
        if file.is_symlink():
            digest.update(os.fsencode(file.readlink()))
        elif file.is_file():
            digest.update(_hash(file))
    return Overlay(path, digest.hexdigest()[:12])


def _walk(path: Path) -> Iterator[Path]:
    for directory, directories, files in os.walk(path):
        directories.sort()
        yield from (Path(directory, name) for name in sorted([*directories, *files]))


def _hash(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def pack(overlay: Overlay, image: Image, progress: Callable[[str], None] = print) -> Path:
    """Return the squashfs of ``overlay`` for ``image``; pack it if the cache does not have it."""
    cache = cache_root() / "overlays"
    packed = cache / f"{overlay.hash}-{image.hash}.squashfs"
    if packed.exists():
        return packed
    require(["mksquashfs", "unsquashfs", "depmod"])
    progress(f"overlay: packing {overlay.path}")
    cache.mkdir(parents=True, exist_ok=True)
    work = cache / f".build-{os.getpid()}"
    try:
        tree = work / "tree"
        shutil.copytree(overlay.path, tree, symlinks=True)
        if (tree / MODULES).is_dir():
            _add_tables(work, tree, image)
        new = work / "new"
        run(["mksquashfs", tree, new, "-all-root", "-quiet", "-no-progress", *("-comp", "lz4")], timeout=300)
        new.replace(packed)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return packed


def _add_tables(work: Path, tree: Path, image: Image) -> None:
    """Run depmod over the modules of image and overlay and add its tables to the overlay."""
    release = image.kernel_release
    own_modules = tree / MODULES / release
    if not own_modules.is_dir():
        releases = ", ".join(sorted(path.name for path in (tree / MODULES).iterdir()))
        raise LabError(f"--overlay: its modules are for Linux {releases}, but the image has {release}")
    merged = work / "merged"
    run(["unsquashfs", "-quiet", "-no-progress", "-dest", merged, image.rootfs, str(MODULES)], timeout=120)
    shutil.copytree(own_modules, merged / MODULES / release, symlinks=True, dirs_exist_ok=True)
    (merged / "lib").symlink_to("usr/lib")  # where depmod looks
    run(["depmod", "-b", merged, release], timeout=120)
    for table in (merged / MODULES / release).glob("modules.*"):
        shutil.copyfile(table, own_modules / table.name)
