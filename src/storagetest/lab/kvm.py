"""Choose between KVM and emulation by a test boot under KVM.

Why: inside a virtual machine, /dev/kvm can exist, accept all ioctls and run real-mode code, and a kernel
still hangs under it. So the image's kernel boots under KVM, with the lab's processor model, up to its first
process. If that does not start within a few seconds, the lab uses emulation. The cache stores the result
until this host reboots or QEMU changes. Permissions are checked every time.
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

from storagetest.files import replace_file
from storagetest.lab.initramfs import File, archive
from storagetest.lab.paths import cache_root
from storagetest.lab.subprocess_util import die_with_parent

_KVM = Path("/dev/kvm")
_TIMEOUT = 6.0  # seconds; chosen: a guest under KVM needs less than one
_GREETING = "storagetest: a guest runs"
_INIT = f"#!/bin/busybox sh\n/bin/busybox echo '{_GREETING}' >/dev/console\n/bin/busybox poweroff -f\n"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """KVM or emulation; ``reason`` and ``detail`` say why not KVM."""

    kvm: bool
    reason: str = ""
    detail: str = ""

    def describe(self) -> str:
        """Return a short text for messages."""
        return "KVM" if self.kvm else f"emulation ({self.reason})"


def choose(kernel: Path, initrd: Path) -> Accelerator:
    """Return the accelerator that works for ``kernel`` on this host; ``initrd`` contains busybox."""
    if not _KVM.exists():
        return Accelerator(kvm=False, reason="no /dev/kvm")
    if not os.access(_KVM, os.R_OK | os.W_OK):
        return Accelerator(kvm=False, reason="no permission for /dev/kvm: add the user to group kvm")
    cached = cache_root() / "kvm.json"
    key = _key()
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        entry = json.loads(cached.read_text())
        if entry["key"] == key:
            return Accelerator(**entry["accel"])
    accel = _probe(kernel, initrd)
    cached.parent.mkdir(parents=True, exist_ok=True)
    replace_file(cached, json.dumps({"key": key, "accel": asdict(accel)}))
    return accel


def _key() -> str:
    """Return what the result depends on: this boot of the host, and this QEMU."""
    qemu = shutil.which("qemu-system-x86_64") or ""
    modified = Path(qemu).stat().st_mtime_ns if qemu else 0
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {qemu} {modified}"


def probe_argv(kernel: Path, initrd: Path) -> list[str]:
    """Return the command that boots a guest under KVM up to its first process."""
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


def parse_probe(console: str, stderr: str) -> Accelerator:
    """Return the result of a test boot from the guest's console and QEMU's stderr."""
    if _GREETING in console:
        return Accelerator(kvm=True)
    error = (stderr.strip().splitlines() or [f"no guest output within {_TIMEOUT:g} s"])[0]
    return Accelerator(kvm=False, reason="KVM does not work here", detail=error)


def _probe(kernel: Path, initrd: Path) -> Accelerator:
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
            preexec_fn=die_with_parent(),  # noqa: PLW1509  # safe with threads, see there
        )
        try:
            console, stderr = child.communicate(timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            child.kill()
            console, stderr = child.communicate()
        finally:
            child.kill()
            child.wait()
    return parse_probe(console, stderr)
