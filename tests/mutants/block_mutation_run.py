"""A mutant of a block device: a file of :mod:`block_files`, mounted over FUSE, under a loop device.

The cases are those of suites/conformance/block whose body runs on a client; they run here as they do there,
by the agent, on the loop device. Attaching is left out: no signature is looked for on a device that lies.

What is made is undone at the end of the ``with``; what a killed run has left (a loop device whose directory
bears the number of a dead process) is undone by the next one.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import block_files
import fuse_mount
from body_cases import BodyCase

from storagetest.hosts.local import LocalHost
from storagetest.runner.client_cases import ClientCaseResult, ClientCaseStatus, run_cases

SIZE = 64 << 20
_PREFIX = "storagetest-block-"
_DEADLINE = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the cases on one disk, by their ids; ``acted`` is whether it broke its promise."""

    answers: dict[str, ClientCaseResult]
    acted: bool

    def failed(self) -> list[str]:
        """Return the ids of the cases that failed."""
        return sorted(
            name for name, answer in self.answers.items() if answer.status is ClientCaseStatus.FAILED
        )


def why_not() -> str | None:
    """Return why no such disk can be had here, or None."""
    if not Path("/dev/loop-control").exists():
        return "there is no /dev/loop-control: the kernel has no loop devices"
    return fuse_mount.why_not()


def run(name: str | None, cases: Sequence[BodyCase], *, sector: int = 512) -> Outcome:
    """Run ``cases`` on the mutant of that name, or an honest disk; logical blocks have ``sector`` bytes."""
    with loop_over(name, sector=sector) as (device, below), LocalHost("here") as here:
        answers = run_cases(here, [case.call for case in cases], path=device, timeout=_DEADLINE)
        acted = (below / block_files.ACTED).exists()
    return Outcome({answer.id: answer for answer in answers}, acted)


@contextmanager
def loop_over(name: str | None, *, files: str = "", sector: int = 512) -> Iterator[tuple[str, Path]]:
    """Yield a loop device over a disk, and the directory that the disk's own file is in.

    ``files`` names a disk of another module than :mod:`block_files`, as ``module:name``.
    """
    _sweep()
    kind = "Disk" if name is None else block_files.MUTANTS[name].__name__
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as place:
        below, at = Path(place, "below"), Path(place, "at")
        below.mkdir()
        at.mkdir()
        with (below / block_files.DISK).open("wb") as disk:
            disk.truncate(SIZE)
        (below / block_files.POWER).touch()
        with fuse_mount.mounted(files or f"block_files:{kind}", below, at):
            attach = ["losetup", "--find", "--show", "--direct-io=on", "--sector-size", str(sector)]
            attach.append(str(at / block_files.DISK))
            device = _run(attach).strip()
            try:
                yield device, below
            finally:
                _run(["losetup", "--detach", device])


def _sweep() -> None:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            path = backing.read_text(encoding="utf-8").strip()
        except OSError:
            continue
        _, found, rest = path.partition(f"/{_PREFIX}")
        if found and not Path("/proc", rest.partition("-")[0]).exists():
            _run(["losetup", "--detach", f"/dev/{backing.parts[3]}"])


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_DEADLINE)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout
