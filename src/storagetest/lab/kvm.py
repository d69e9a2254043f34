"""KVM or emulation? Whether /dev/kvm exists says little; whether a guest runs under it says all.

Inside virtual machines /dev/kvm may be there, may be opened, may answer every ioctl and may even run a few
instructions of real mode, and a kernel still hangs in it. So the image's own kernel is started under KVM, on
the processor model that the lab would use, as far as the first process. A few seconds without that mean
emulation. The answer is remembered in the cache for as long as this machine is up and this QEMU is
installed; permissions are looked at every time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from storagetest.lab.initramfs import File, archive
from storagetest.lab.paths import cache_root
from storagetest.lab.process import bound_to_parent

__all__ = ["Accel", "choose", "judge", "probe_argv"]

_KVM = Path("/dev/kvm")
_DEADLINE = 6.0
_GREETING = "storagetest: a guest runs"
_INIT = f"#!/bin/busybox sh\n/bin/busybox echo '{_GREETING}' >/dev/console\n/bin/busybox poweroff -f\n"


@dataclass(frozen=True, slots=True)
class Accel:
    """How guests are run, and why not by KVM where they are not."""

    kvm: bool
    why: str = ""
    detail: str = ""

    def describe(self) -> str:
        """Say it in a few words."""
        return "KVM" if self.kvm else f"emulation ({self.why})"


def choose(kernel: Path, initrd: Path) -> Accel:
    """Return what works on this machine for that kernel; ``initrd`` must hold busybox."""
    if not _KVM.exists():
        return Accel(kvm=False, why="no /dev/kvm")
    if not os.access(_KVM, os.R_OK | os.W_OK):
        return Accel(kvm=False, why="/dev/kvm is not open to this user; group kvm?")
    memory = cache_root() / "kvm.json"
    key = _key()
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(memory.read_text())
        if known["key"] == key:
            return Accel(**known["accel"])
    accel = _probe(kernel, initrd)
    memory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=memory.parent, delete=False) as file:
        json.dump({"key": key, "accel": asdict(accel)}, file)
    Path(file.name).replace(memory)
    return accel


def _key() -> str:
    """Return what the answer depends on: this boot of this kernel, and this QEMU."""
    qemu = shutil.which("qemu-system-x86_64") or ""
    modified = Path(qemu).stat().st_mtime_ns if qemu else 0
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {qemu} {modified}"


def probe_argv(kernel: Path, initrd: Path) -> list[str]:
    """Return the command that runs a guest under KVM to its first process and no further."""
    return [
        "qemu-system-x86_64",
        *("-M", "q35"),
        *("-accel", "kvm"),
        *("-cpu", "host"),
        *("-m", "256"),
        "-nodefaults",
        *("-display", "none"),
        *("-serial", "stdio"),
        *("-kernel", str(kernel)),
        *("-initrd", str(initrd)),
        *("-append", "console=ttyS0 quiet panic=-1"),
        "-no-reboot",
    ]


def judge(console: str, complaint: str) -> Accel:
    """Return the answer from what a probe wrote to its console and QEMU to its stderr, dead or timed out."""
    if _GREETING in console:
        return Accel(kvm=True)
    first = (complaint.strip().splitlines() or [f"a guest does not start within {_DEADLINE:g} s"])[0]
    return Accel(kvm=False, why="KVM does not work here", detail=first)


def _probe(kernel: Path, initrd: Path) -> Accel:
    with tempfile.TemporaryDirectory(prefix="storagetest-kvm-") as directory:
        probe = Path(directory, "initrd")
        probe.write_bytes(initrd.read_bytes() + archive({"init": File(_INIT.encode(), 0o755)}))
        child = subprocess.Popen(
            probe_argv(kernel, probe),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=bound_to_parent(),  # noqa: PLW1509  # see there
        )
        try:
            console, complaint = child.communicate(timeout=_DEADLINE)
        except subprocess.TimeoutExpired:
            child.kill()
            console, complaint = child.communicate()
        finally:
            child.kill()
            child.wait()
    return judge(console, complaint)
