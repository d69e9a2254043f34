"""Build the image that the lab's machines boot from: Debian with its stock kernel, as a squashfs.

There is one image per Debian release. mmdebstrap builds it, without root if unprivileged user namespaces are
allowed, and from this machine's apt sources if it runs the same Debian release. The cache stores the image
under the hash of its recipe: a changed recipe is a new image. Changed scripts, targets and keys need no new
image.

Invariants:

1. An image is built in a temporary directory and renamed when it is complete. The next build removes
   leftovers.
2. A lock allows one build at a time. A process that waited for it uses the image of the other process.
3. An image is used only if all its files have the sizes that they were built with.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from storagetest.errors import LabError
from storagetest.lab import apt_sources, fio_libraries
from storagetest.lab.initramfs import File, archive, load_order, normalised
from storagetest.lab.paths import cache_root
from storagetest.lab.subprocess_util import die_with_parent, require, run, tail

_BUILD_TIMEOUT = 1800.0  # seconds; chosen: a build takes about a minute
_PREFIX = ".build-"
Progress = Callable[[str], None]

# Run in the image's tree with its Python. Decompresses the kernel modules (Debian 13 has .ko.xz, which
# busybox's insmod cannot load) and removes their signatures: under emulation the signature check is three
# quarters of a module's load time, and a kernel without lockdown loads unsigned modules. A signed module ends
# with the signature, 12 bytes whose last 4 are its length, and a magic string (linux/scripts/sign-file.c).
_MODULES = """
import lzma, pathlib, subprocess
magic = b"~Module signature appended~\\n"
for path in sorted(pathlib.Path("/usr/lib/modules").rglob("*.ko.xz")):
    path.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
    path.unlink()
for path in pathlib.Path("/usr/lib/modules").rglob("*.ko"):
    data = path.read_bytes()
    if data.endswith(magic):
        end = len(data) - len(magic)
        path.write_bytes(data[: end - 12 - int.from_bytes(data[end - 4 : end], "big")])
for kernel in pathlib.Path("/usr/lib/modules").iterdir():
    subprocess.run(["depmod", kernel.name], check=True)
"""

_UNPACK = (
    'cd "$1/tmp" && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get download {package} '
    '&& dpkg-deb --extract {package}_*.deb "$1" && rm {package}_*.deb'
)

_FIO_LIBRARIES = shlex.join([sys.executable, "-Wignore:::runpy", "-m", fio_libraries.__name__]) + ' "$1"'

_BASE_PACKAGES = (
    *("linux-image-cloud-amd64", "kmod", "busybox-static", "iproute2", "util-linux", "procps"),
    *("openssh-server", "python3-minimal", "libpython3-stdlib"),
    *("e2fsprogs", "xfsprogs", "dmsetup", "attr", "acl", "tcpdump"),
)
"""Packages of every machine; those of a service are in its module."""

_EXCLUDES = (
    *("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*"),
    *("/usr/share/i18n/*", "/usr/share/bash-completion/*", "/usr/lib/udev/hwdb.d/*"),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that the content of an image depends on."""

    suite: str
    """The Debian release."""
    packages: tuple[str, ...]
    excludes: tuple[str, ...]
    early_modules: tuple[str, ...]
    version: int
    unpacked: tuple[str, ...] = ()
    """Packages to unpack without installation, because they conflict with installed ones."""

    @classmethod
    def of(cls, suite: str, packages: Iterable[str], unpacked: Iterable[str]) -> Recipe:
        """Return the recipe of an image with ``packages`` in addition to what every machine needs."""
        return cls(
            suite=suite,
            packages=tuple(sorted({*_BASE_PACKAGES, *packages})),
            excludes=_EXCLUDES,
            early_modules=("virtio_pci", "virtio_blk", "squashfs", "overlay", "virtio_net"),
            version=4,
            unpacked=tuple(sorted(set(unpacked))),
        )

    def hash(self) -> str:
        """Return the name of the image."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Image:
    """A built image: one directory in the cache."""

    path: Path
    kernel_release: str

    @property
    def hash(self) -> str:
        """The hash of its recipe."""
        return self.path.name

    @property
    def rootfs(self) -> Path:
        """The squashfs of the root file system."""
        return self.path / "rootfs.squashfs"

    @property
    def kernel(self) -> Path:
        """The kernel, for QEMU's -kernel."""
        return self.path / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The part of the initramfs that is the same for all machines."""
        return self.path / "initrd"


def find(recipe: Recipe) -> Image | None:
    """Return the image of ``recipe`` if the cache has it and all its files have the right size."""
    path = _images() / recipe.hash()
    try:
        facts = json.loads((path / "image.json").read_text())
        if all((path / name).stat().st_size == size for name, size in facts["sizes"].items()):
            return Image(path, facts["kernel_release"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def build(recipe: Recipe, progress: Callable[[str], None] = print) -> Image:
    """Return the image of ``recipe``; build it if the cache does not have it."""
    if image := find(recipe):
        return image
    namespaces = ["newuidmap"] if os.geteuid() else []  # mmdebstrap needs it without root
    require(["mmdebstrap", "mksquashfs", "unsquashfs", *fio_libraries.TOOLS, *namespaces])
    with _one_builder(progress):
        if image := find(recipe):
            return image
        for leftover in _images().glob(f"{_PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        progress("image: building it (once, about a minute)")
        work = _images() / f"{_PREFIX}{os.getpid()}"
        work.mkdir()
        try:
            _build_in(work, recipe)
            final = _images() / recipe.hash()
            if final.exists():  # damaged: find() has not returned it
                shutil.rmtree(final)
            (work / "new").rename(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    image = find(recipe)
    if image is None:
        raise LabError(f"{_images()}: the new image is incomplete. Check for free disk space.")
    progress(f"image: built, {image.rootfs.stat().st_size >> 20} MiB")
    return image


def mmdebstrap_argv(recipe: Recipe, sources: list[str]) -> list[str]:
    """Return the command that writes the image's file tree to stdout as a tar archive."""
    return [
        "mmdebstrap",
        "--mode=auto",
        "--format=tar",
        "--variant=minbase",
        f"--include={','.join(recipe.packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.excludes),
        "--dpkgopt=force-unsafe-io",
        *(f"--customize-hook={_UNPACK.format(package=package)}" for package in recipe.unpacked),
        f'--customize-hook=chroot "$1" python3 -c {shlex.quote(_MODULES)}',
        *([f"--customize-hook={_FIO_LIBRARIES}"] if "fio" in recipe.packages else []),
        recipe.suite,
        "-",
        *sources,
    ]


def _images() -> Path:
    return cache_root() / "images"


@contextmanager
def _one_builder(progress: Progress) -> Iterator[None]:
    _images().mkdir(parents=True, exist_ok=True)
    with (_images() / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("image: another process builds it, waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_in(work: Path, recipe: Recipe) -> None:
    new, tree = work / "new", work / "tree"
    new.mkdir()
    rootfs = new / "rootfs.squashfs"
    _bootstrap(work, recipe, rootfs)
    wanted = ["boot", "usr/lib/modules", "usr/bin/busybox"]
    run(["unsquashfs", "-quiet", "-no-progress", "-dest", tree, rootfs, *wanted], timeout=120)
    modules = next(iter(sorted((tree / "usr/lib/modules").iterdir())), None)
    if modules is None:
        raise LabError("image: no kernel in /usr/lib/modules after mmdebstrap")
    shutil.copyfile(tree / "boot" / f"vmlinuz-{modules.name}", new / "vmlinuz")
    (new / "initrd").write_bytes(_early(modules, tree / "usr/bin/busybox", recipe))
    sizes = {file.name: file.stat().st_size for file in new.iterdir()}
    (new / "image.json").write_text(json.dumps({"kernel_release": modules.name, "sizes": sizes}))


def _bootstrap(work: Path, recipe: Recipe, rootfs: Path) -> None:
    """Pipe mmdebstrap's output into mksquashfs; both end with this process."""
    log = work / "mmdebstrap.log"
    environ = os.environ | {"TMPDIR": str(work), "INITRD": "No"}  # Debian's initramfs is not used
    squash = ["mksquashfs", "-", str(rootfs), "-tar", "-quiet", "-no-progress", *("-comp", "lz4")]
    argv = mmdebstrap_argv(recipe, apt_sources.matching(recipe.suite, work))
    # SIGTERM, not SIGKILL: only mmdebstrap itself can remove the files of its user namespace.
    preexec = die_with_parent(signal.SIGTERM)
    with log.open("wb") as stderr:
        bootstrap = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environ,
            preexec_fn=preexec,  # noqa: PLW1509  # safe with threads, see die_with_parent
            process_group=0,  # so that killpg reaches its children
        )
        squash_process = subprocess.Popen(
            squash,
            stdin=bootstrap.stdout,
            stdout=stderr,
            stderr=stderr,
            preexec_fn=preexec,  # noqa: PLW1509  # safe with threads, see die_with_parent
        )
        assert bootstrap.stdout is not None
        bootstrap.stdout.close()
        try:
            failed = bool(squash_process.wait(_BUILD_TIMEOUT)) | bool(bootstrap.wait(60))
        except subprocess.TimeoutExpired:
            raise LabError(
                f"image: the build did not end within {_BUILD_TIMEOUT:g} s:\n{tail(log)}"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(bootstrap.pid, signal.SIGTERM)
            bootstrap.wait()
            squash_process.kill()
            squash_process.wait()
    if failed:
        raise LabError(f"image: mmdebstrap failed:\n{tail(log, 12)}")


def _early(modules: Path, busybox: Path, recipe: Recipe) -> bytes:
    """Return the initramfs part for all machines: busybox and the modules for the root file system."""
    depends, builtin = ((modules / f"modules.{kind}").read_text() for kind in ("dep", "builtin"))
    files = {"bin/busybox": File(busybox.read_bytes(), 0o755)}
    for number, path in enumerate(load_order(depends, recipe.early_modules, builtin)):
        files[f"modules/{number:02}-{normalised(path)}.ko"] = File((modules / path).read_bytes())
    return archive(files)
