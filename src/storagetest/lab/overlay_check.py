"""Check of an overlay: whether the tree contains what a service needs from it, for the image's kernel.

A service declares its :class:`~storagetest.lab.services.OverlayContents`. No program of the tree is run: a
module states the kernel that it is built for (``vermagic=``). An ELF file states its processor (ELF-64 Object
File Format, e_machine) and, as text, the libraries that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from storagetest.lab import overlays
from storagetest.lab.services import OverlayContents

_X86_64 = b"\x3e\x00"
_MACHINE = slice(18, 20)
_ELF = b"\x7fELF"
_COMPRESSED = (".xz", ".gz", ".zst")
_VERMAGIC = re.compile(rb"vermagic=([^ \0]+)")


@dataclass(frozen=True, slots=True)
class OverlayFinding:
    """One item that a service needs; ``problem`` is empty if the tree has it."""

    item: str
    purpose: str
    problem: str = ""


def check(path: Path, contents: OverlayContents, release: str) -> list[OverlayFinding]:
    """Return a finding for each item of ``contents``; ``release`` is the image's kernel release.

    Raises :class:`~storagetest.errors.LabError` if ``path`` is no tree that can be mounted over the image.
    """
    overlays.describe(path)
    return [
        *_modules(path, contents.modules, release),
        *_programs(path, contents.programs),
        *_libraries(path, contents.plugins),
        *_libraries(path, _named_libraries(path, contents)),
    ]


def _modules(path: Path, wanted: Sequence[str], release: str) -> Iterator[OverlayFinding]:
    directory = path / overlays.MODULES / release
    files = {_module_name(file): file for file in sorted(directory.rglob("*.ko*"))}
    for name in wanted:
        item, purpose = f"{overlays.MODULES}/{release}/**/{name}.ko", "a kernel module"
        file = files.get(name)
        if file is not None:
            yield OverlayFinding(item, purpose, _module_problem(file, release))
        elif directory.is_dir():
            yield OverlayFinding(item, purpose, "missing")
        else:
            parent = path / overlays.MODULES
            others = sorted(each.name for each in parent.iterdir()) if parent.is_dir() else []
            found = f"the tree has modules for Linux {', '.join(others)}" if others else "missing"
            yield OverlayFinding(item, purpose, found)


def _module_name(file: Path) -> str:
    return file.name.partition(".ko")[0].replace("-", "_")


def _module_problem(file: Path, release: str) -> str:
    if file.name.endswith(_COMPRESSED):
        return f"{file.name} is compressed, and the machines load modules that are not: decompress it"
    data = file.read_bytes()
    built_for = _VERMAGIC.search(data)
    if not data.startswith(_ELF) or built_for is None:
        return "this is not a kernel module"
    if (found := built_for[1].decode(errors="replace")) != release:
        return f"it is built for Linux {found}, and the image has {release}"
    return ""


def _programs(path: Path, wanted: Sequence[tuple[str, str]]) -> Iterator[OverlayFinding]:
    for item, purpose in wanted:
        file = path / item
        if not (file.is_file() or file.is_symlink()):
            yield OverlayFinding(item, purpose, "missing")
        elif file.is_symlink() and not file.exists():
            yield OverlayFinding(item, purpose, f"a link to {file.readlink()}, which the tree does not have")
        elif not file.stat().st_mode & 0o111:
            yield OverlayFinding(item, purpose, "not executable: chmod 755")
        else:
            yield OverlayFinding(item, purpose, _program_problem(file.read_bytes()))


def _program_problem(data: bytes) -> str:
    if data.startswith(b"#!"):
        return "a script: libtool's wrapper of the build tree is one; install the program itself"
    if not data.startswith(_ELF) or data[_MACHINE] != _X86_64:
        return "not a program for x86-64"
    return ""


def _named_libraries(path: Path, contents: OverlayContents) -> list[tuple[str, str]]:
    """Return the libraries that come with the programs, as these name them, each with its purpose."""
    names: dict[str, str] = {}
    for item, _ in contents.programs:
        if (path / item).is_file():
            data = (path / item).read_bytes()
            for library in contents.libraries:
                for match in re.findall(rb"\b" + re.escape(library.encode()) + rb"\.so\.\d+", data):
                    names.setdefault(match.decode(), f"a library of {item}")
    return sorted(names.items())


def _libraries(path: Path, wanted: Sequence[tuple[str, str]]) -> Iterator[OverlayFinding]:
    """Look for files below usr/lib, usr/lib64 …: a library's directory depends on how it was built."""
    present = {file.name for file in path.glob("usr/lib*/**/*.so*")}
    for name, purpose in wanted:
        yield OverlayFinding(f"usr/lib*/**/{name}", purpose, "" if name in present else "missing")
