"""The image that every machine of a lab starts from: a Debian with a stock kernel, as a squashfs.

There is one for each release of Debian that a role asks for. It is built once, by mmdebstrap, without root
where unprivileged user namespaces are allowed, from the apt sources of this machine if it runs the same
Debian. What makes it (the recipe) is hashed; the image lives in the cache under that hash, so another recipe
is another image and a changed role or key is none.

Rules:

1. An image is built in a directory of its own and renamed into place when it is whole: there is no partial
   image, only leftovers, which the next builder removes.
2. One builds at a time (a lock); who waited finds the image built.
3. A file that has not the size it was built with is not used.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from storagetest.errors import LabError
from storagetest.lab import aptsources
from storagetest.lab.initramfs import File, archive, load_order, normalised
from storagetest.lab.paths import cache_root
from storagetest.lab.process import bound_to_parent, require, run, tail

__all__ = ["RECIPES", "Image", "Recipe", "build", "find", "mmdebstrap_argv"]

_BUILD_DEADLINE = 1800.0
_PREFIX = ".build-"
Progress = Callable[[str], None]

# Run in the image's tree, by its own Python. Under emulation three quarters of the time that a module takes
# to load is the check of its signature (linux/scripts/sign-file.c: 12 bytes of facts whose last 4 are the
# signature's length, and a magic string end the file); a kernel that is not locked down loads it without.
# Debian compresses modules since 13, and busybox's insmod wants them as they are.
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


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides what is in an image."""

    suite: str
    packages: tuple[str, ...]
    excludes: tuple[str, ...]
    early_modules: tuple[str, ...]
    version: int
    unpacked: tuple[str, ...] = ()
    """Packages whose files are laid over the others: what would not be installed beside them."""

    def hash(self) -> str:
        """Return the name of the image that this recipe makes."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]


_PACKAGES = (
    *("linux-image-cloud-amd64", "kmod", "busybox-static", "iproute2", "util-linux", "procps"),
    *("openssh-server", "python3-minimal", "libpython3-stdlib", "fio"),
    *("nfs-kernel-server", "nfs-common", "rpcbind", "nfs-ganesha", "nfs-ganesha-vfs"),
    *("samba", "cifs-utils", "keyutils"),
    *("open-iscsi", "tgt", "lsscsi", "nvme-cli"),
    *("e2fsprogs", "xfsprogs", "dmsetup", "attr", "acl", "tcpdump"),
    # What the tools of Lustre are linked with; they come in an overlay, see overlays.py.
    *("libyaml-0-2", "libnl-3-200", "libnl-genl-3-200", "libmount1", "libkeyutils1"),
)


def _debian(suite: str, *more: str, unpacked: tuple[str, ...] = ()) -> Recipe:
    return Recipe(
        suite=suite,
        packages=(*_PACKAGES, *more),
        excludes=(
            *("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*"),
            *("/usr/share/i18n/*", "/usr/share/bash-completion/*", "/usr/lib/udev/hwdb.d/*"),
        ),
        early_modules=("virtio_pci", "virtio_blk", "squashfs", "overlay", "virtio_net"),
        version=2,
        unpacked=unpacked,
    )


RECIPES: Mapping[str, Recipe] = {
    "bookworm": _debian("bookworm", "libreadline8"),
    # ksmbd's tools declare a conflict with Samba: both want one port, which the lab gives to only one.
    "trixie": _debian("trixie", "libreadline8t64", "libglib2.0-0t64", "libkrb5-3", unpacked=("ksmbd-tools",)),
}
"""By the release of Debian that a role runs on."""


@dataclass(frozen=True, slots=True)
class Image:
    """A built image: a directory of the cache."""

    path: Path
    kernel_release: str

    @property
    def hash(self) -> str:
        """Its name."""
        return self.path.name

    @property
    def rootfs(self) -> Path:
        """The root file system, a squashfs."""
        return self.path / "rootfs.squashfs"

    @property
    def kernel(self) -> Path:
        """The kernel, as QEMU's -kernel takes it."""
        return self.path / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The half of the initramfs that all machines share."""
        return self.path / "initrd"


def find(recipe: Recipe) -> Image | None:
    """Return the image of ``recipe`` if it is in the cache and whole."""
    path = _images() / recipe.hash()
    try:
        facts = json.loads((path / "image.json").read_text())
        if all((path / name).stat().st_size == size for name, size in facts["sizes"].items()):
            return Image(path, facts["kernel_release"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def build(recipe: Recipe, progress: Callable[[str], None] = print) -> Image:
    """Return the image of ``recipe``, built now unless it is in the cache."""
    if image := find(recipe):
        return image
    namespaces = ["newuidmap"] if os.geteuid() else []  # mmdebstrap's way to do without root
    require(["mmdebstrap", "mksquashfs", "unsquashfs", *namespaces])
    with _one_builder(progress):
        if image := find(recipe):
            return image
        for leftover in _images().glob(f"{_PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        progress("image: building (first time only, about a minute)")
        work = _images() / f"{_PREFIX}{os.getpid()}"
        work.mkdir()
        try:
            _build_in(work, recipe)
            final = _images() / recipe.hash()
            if final.exists():  # damaged, or find() had returned it
                shutil.rmtree(final)
            (work / "new").rename(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    image = find(recipe)
    if image is None:
        raise LabError(f"the image that was just built in {_images()} is not whole: is the disk full?")
    progress(f"image: built, {image.rootfs.stat().st_size >> 20} MiB")
    return image


def mmdebstrap_argv(recipe: Recipe, sources: list[str]) -> list[str]:
    """Return the command that writes the image's tree to stdout as a tar archive."""
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
            progress("image: somebody else is building it, waiting")
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
        raise LabError("the image has no kernel: mmdebstrap did not do what it was asked")
    shutil.copyfile(tree / "boot" / f"vmlinuz-{modules.name}", new / "vmlinuz")
    (new / "initrd").write_bytes(_early(modules, tree / "usr/bin/busybox", recipe))
    sizes = {file.name: file.stat().st_size for file in new.iterdir()}
    (new / "image.json").write_text(json.dumps({"kernel_release": modules.name, "sizes": sizes}))


def _bootstrap(work: Path, recipe: Recipe, rootfs: Path) -> None:
    """Pipe mmdebstrap's tree into mksquashfs; neither outlives this process."""
    log = work / "mmdebstrap.log"
    environ = os.environ | {"TMPDIR": str(work), "INITRD": "No"}  # Debian's initramfs is never booted
    squash = ["mksquashfs", "-", str(rootfs), "-tar", "-quiet", "-no-progress", *("-comp", "lz4")]
    argv = mmdebstrap_argv(recipe, aptsources.matching(recipe.suite, work))
    # SIGTERM and not SIGKILL: mmdebstrap cleans up after itself, which nobody else may in its user namespace.
    bound = bound_to_parent(signal.SIGTERM)
    with log.open("wb") as complaints:
        maker = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=environ,
            preexec_fn=bound,  # noqa: PLW1509  # see there
            process_group=0,  # so that its children hear of an interruption too
        )
        packer = subprocess.Popen(
            squash,
            stdin=maker.stdout,
            stdout=complaints,
            stderr=complaints,
            preexec_fn=bound,  # noqa: PLW1509  # see there
        )
        assert maker.stdout is not None
        maker.stdout.close()
        try:
            failed = bool(packer.wait(_BUILD_DEADLINE)) | bool(maker.wait(60))
        except subprocess.TimeoutExpired:
            raise LabError(f"the image was not built within {_BUILD_DEADLINE:g} s:\n{tail(log)}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(maker.pid, signal.SIGTERM)
            maker.wait()
            packer.kill()
            packer.wait()
    if failed:
        raise LabError(f"mmdebstrap could not build the image:\n{tail(log, 12)}")


def _early(modules: Path, busybox: Path, recipe: Recipe) -> bytes:
    """Return the half of the initramfs that all machines share: busybox and the way to the root."""
    depends, builtin = ((modules / f"modules.{kind}").read_text() for kind in ("dep", "builtin"))
    files = {"bin/busybox": File(busybox.read_bytes(), 0o755)}
    for number, path in enumerate(load_order(depends, recipe.early_modules, builtin)):
        files[f"modules/{number:02}-{normalised(path)}.ko"] = File((modules / path).read_bytes())
    return archive(files)
