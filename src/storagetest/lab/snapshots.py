"""Snapshots: the machines of a booted lab, saved once; later labs with the same parameters resume from them.

A snapshot is a directory of the cache with two files per machine: its memory (sparse), and the state of its
processor and devices. The second is QEMU's migration stream with the capability ``x-ignore-shared``, which
leaves out memory that is a shared mapping of a file (see qemu.py). If the machines share a disk, the snapshot
has a copy of it, and every lab that resumes gets its own.

A program in every resumed machine renews what must differ between two labs: see guest/resume.py.

Rules:

1. The key covers everything that the machines' state depends on: QEMU's version and options, the image, the
   scripts and services of the machines, and with KVM the host's processor.
2. A snapshot is written to a temporary directory and renamed when it is complete and on disk.
3. Running labs do not need the directory: it may be removed at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from storagetest.concurrency import run_concurrently
from storagetest.errors import LabError
from storagetest.files import replace_file
from storagetest.lab import guest_files, qemu, qmp
from storagetest.lab.paths import cache_root
from storagetest.lab.subprocess_util import run
from storagetest.polling import wait_until

_FACTS = "snapshot.json"
_VERSIONS = "versions.json"
_PREFIX = ".save-"
KEPT = 8
"""Snapshots in the cache, of about 600 MiB each; the least recently used one is removed first (chosen)."""
_SAVE_TIMEOUT = 600.0  # seconds; a bound on a hang, on a busy host
_LOAD_TIMEOUT = 300.0  # seconds; likewise
_CAPABILITIES = [{"capability": "x-ignore-shared", "state": True}]


@dataclass(frozen=True, slots=True)
class LabSnapshot:
    """The directory of a complete snapshot, or of one that is being written."""

    path: Path

    def files(self, machine: str) -> qemu.MachineFiles:
        """Return the paths of a machine's files."""
        return qemu.MachineFiles(str(self.path / f"memory-{machine}"), str(self.path / f"state-{machine}"))

    def versions(self, number: int) -> list[str] | None:
        """Return the lines that :meth:`keep_versions` has kept, or None if there are not ``number``.

        The key covers the image, so the versions of its programs do not change. A login to ask for them costs
        as much time as half of the resume.
        """
        with contextlib.suppress(OSError, ValueError):
            lines = json.loads((self.path / _VERSIONS).read_text())
            if (
                isinstance(lines, list)
                and len(lines) == number
                and all(isinstance(one, str) for one in lines)
            ):
                return lines
        return None

    def keep_versions(self, lines: Sequence[str]) -> None:
        """Keep ``lines``, unless another process has removed the snapshot."""
        with contextlib.suppress(OSError):
            replace_file(self.path / _VERSIONS, json.dumps(list(lines)))


def key_of(machines: Sequence[qemu.Machine], boot: qemu.Boot, qemu_version: str) -> str:
    """Return the name of the snapshot of these machines.

    It depends on when the disks were built: an image that is built again may have other blocks where the
    memory of a machine remembers its files.
    """
    digest = hashlib.sha256(qemu_version.encode())
    for disk in boot.disks:
        status = Path(disk).stat()
        digest.update(f"{status.st_size} {status.st_mtime_ns}\0".encode())
    for machine in machines:
        argv = qemu.argv(machine, boot, machines, resume=qemu.MachineFiles("memory", "state"))
        digest.update(json.dumps(argv).encode())
        private = guest_files.Private(b"", b"", defaultdict(str))
        for path, file in guest_files.files(machine, machines, private, boot=boot).items():
            digest.update(f"{path}\0{file.mode}\0{len(file.data)}\0".encode() + file.data)
    if boot.kvm:
        digest.update(_processor())
    return digest.hexdigest()[:12]


def _processor() -> bytes:
    """Return the description of the host's first processor without what changes while it runs."""
    lines = Path("/proc/cpuinfo").read_bytes().split(b"\n\n")[0].splitlines()
    return b"\n".join(line for line in lines if not line.startswith((b"cpu MHz", b"bogomips")))


def find(key: str) -> LabSnapshot | None:
    """Return the snapshot called ``key`` if the cache has it and all its files have the right size."""
    snapshot = LabSnapshot(_snapshots() / key)
    facts = snapshot.path / _FACTS
    try:
        sizes = json.loads(facts.read_text())
        if sizes and all((snapshot.path / name).stat().st_size == size for name, size in sizes.items()):
            facts.touch()  # the time of the last use
            return snapshot
    except (OSError, ValueError, TypeError, AttributeError):
        pass
    return None


@contextlib.contextmanager
def new() -> Iterator[LabSnapshot]:
    """Yield an empty temporary snapshot; it is removed at the end unless :func:`save` renamed it."""
    root = _snapshots()
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for leftover in root.glob(f"{_PREFIX}*"):
        if not Path("/proc", leftover.name.removeprefix(_PREFIX)).exists():
            shutil.rmtree(leftover, ignore_errors=True)
    snapshot = LabSnapshot(root / f"{_PREFIX}{os.getpid()}")
    shutil.rmtree(snapshot.path, ignore_errors=True)
    snapshot.path.mkdir(mode=0o700)
    try:
        yield snapshot
    finally:
        shutil.rmtree(snapshot.path, ignore_errors=True)


def save(snapshot: LabSnapshot, lab: Path, machines: Sequence[str], key: str) -> LabSnapshot:
    """Save the running machines of the lab in directory ``lab`` and return the snapshot called ``key``.

    The machines have been started with their memory in the files of ``snapshot``. They do not run afterwards.
    Raises :class:`LabError` if QEMU does not save one.
    """

    def save_machine(machine: str) -> None:
        _migrate(lab / f"qmp-{machine}", "migrate", f"exec:cat >{shlex.quote(snapshot.files(machine).state)}")

    run_concurrently(save_machine, machines, name="save")
    if (disk := lab / qemu.SHARED_DISK).exists():
        _copy_sparse(disk, snapshot.path / qemu.SHARED_DISK)
    sizes = {}
    for path in sorted(snapshot.path.iterdir()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        sizes[path.name] = path.stat().st_size
    (snapshot.path / _FACTS).write_text(json.dumps(sizes))
    # A complete one of another process is not replaced: a lab that resumes from it reads two files, in turn.
    if other := find(key):
        return other
    discard(key)  # an incomplete one
    final = LabSnapshot(snapshot.path.with_name(key))
    try:
        snapshot.path.rename(final.path)
    except OSError as error:
        raise LabError(f"{final.path}: the snapshot cannot be renamed: {error.strerror}") from error
    _remove_old()
    return final


def write_shared_disk(lab: Path, size: int, snapshot: LabSnapshot | None) -> None:
    """Write the disk that the machines of the lab in directory ``lab`` share, before they start.

    It is a copy of the snapshot's, which the machines' memory agrees with. Without a snapshot, it is empty
    and has ``size`` bytes.
    """
    disk = lab / qemu.SHARED_DISK
    disk.unlink(missing_ok=True)
    if snapshot:
        _copy_sparse(snapshot.path / qemu.SHARED_DISK, disk)
    else:
        disk.touch(mode=0o600)
        os.truncate(disk, size)


def _copy_sparse(source: Path, copy: Path) -> None:
    run(["cp", "--sparse=always", "--reflink=auto", "--", source, copy], timeout=_SAVE_TIMEOUT)


def load(qmp_socket: Path, state: str) -> None:
    """Load the state of a machine that waits for it, which then runs. Raises :class:`LabError`."""
    wait_until(
        lambda: qmp.is_ready(qmp_socket), _LOAD_TIMEOUT, qmp_socket.name, interval=0.01, error=LabError
    )
    _migrate(qmp_socket, "migrate-incoming", f"exec:cat {shlex.quote(state)}")


def _migrate(qmp_socket: Path, command: str, uri: str) -> None:
    """Run QEMU's migration in one direction and wait for its end."""
    qmp.execute(qmp_socket, "migrate-set-capabilities", capabilities=_CAPABILITIES)
    qmp.execute(qmp_socket, command, uri=uri)

    def ended() -> dict[str, object]:
        info = qmp.execute(qmp_socket, "query-migrate")
        assert isinstance(info, dict)
        return info if info.get("status") in {"completed", "failed", "cancelled"} else {}

    info = wait_until(ended, _SAVE_TIMEOUT, f"{qmp_socket.name}: {command}", interval=0.02, error=LabError)
    if info["status"] != "completed":
        raise LabError(f"{qmp_socket.name}: {command}: {info.get('error-desc') or info['status']}")


def discard(key: str) -> None:
    """Remove the snapshot called ``key`` if the cache has it."""
    path = _snapshots() / key
    removed = path.with_name(f"{_PREFIX}{os.getpid()}-{key}")  # atomically: `find` sees all files or none
    with contextlib.suppress(OSError):
        path.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def _remove_old() -> None:
    facts = sorted(_snapshots().glob(f"[!.]*/{_FACTS}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in facts[KEPT:]:
        discard(path.parent.name)


def _snapshots() -> Path:
    return cache_root() / "snapshots"
