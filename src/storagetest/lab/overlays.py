"""A directory tree that the user lays over the image: modules and tools that no package registry carries.

The tree becomes a second squashfs, which the machines' overlayfs puts over the image's. Kernel modules need
more than being there: depmod has to see them together with the image's own, so its tables are made here, over
both, and go into the overlay. What was packed is kept in the cache by the hashes of tree and image.
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
from storagetest.lab.process import require, run

__all__ = ["Overlay", "describe", "pack"]

_MODULES = Path("usr/lib/modules")
# Links to usr/… in the image: a directory of that name in an overlay would hide all that is behind the link.
_LINKS = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")


@dataclass(frozen=True, slots=True)
class Overlay:
    """A tree, and the hash of all that is in it."""

    path: Path
    hash: str


def describe(path: Path) -> Overlay:
    """Return the overlay at ``path``; :class:`LabError` if that cannot be one."""
    if not path.is_dir():
        raise LabError(f"{path} is not a directory, so it cannot be an overlay")
    if hidden := [name for name in _LINKS if (path / name).is_dir()]:
        raise LabError(
            f"{path}: {hidden[0]}/ would hide the image's own; put its files under usr/{hidden[0]}/"
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
    """Return the squashfs of ``overlay`` for ``image``, made now unless it is in the cache."""
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
        if (tree / _MODULES).is_dir():
            _add_tables(work, tree, image)
        new = work / "new"
        run(["mksquashfs", tree, new, "-all-root", "-quiet", "-no-progress", *("-comp", "lz4")], timeout=300)
        new.replace(packed)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return packed


def _add_tables(work: Path, tree: Path, image: Image) -> None:
    """Put depmod's tables over the image's and the overlay's modules into the overlay."""
    release = image.kernel_release
    ours = tree / _MODULES / release
    if not ours.is_dir():
        there = ", ".join(sorted(path.name for path in (tree / _MODULES).iterdir()))
        raise LabError(f"the overlay's modules are for Linux {there}; the image has {release}")
    merged = work / "merged"
    run(["unsquashfs", "-quiet", "-no-progress", "-dest", merged, image.rootfs, str(_MODULES)], timeout=120)
    shutil.copytree(ours, merged / _MODULES / release, symlinks=True, dirs_exist_ok=True)
    (merged / "lib").symlink_to("usr/lib")  # where depmod looks
    run(["depmod", "-b", merged, release], timeout=120)
    for table in (merged / _MODULES / release).glob("modules.*"):
        shutil.copyfile(table, ours / table.name)
