"""The process that owns what a run holds on a client: journal entries and processes."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """A controller process: machine, process id, its start in ticks after boot, boot id, PID namespace.

    The namespace is the inode number that namespaces(7) shows, or "" if an older version has not recorded it.
    """

    host: str
    pid: int
    start_time: int
    boot_id: str
    pid_namespace: str = ""

    @classmethod
    def current(cls) -> Owner:
        """Return this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _start_time(pid) or 0, _boot_id(), _pid_namespace())


def in_use(owner: Owner, me: Owner) -> str:
    """Return the reason why ``me`` must not undo or end what ``owner`` holds, or "" if the owner is dead."""
    if owner.host != me.host:
        return f"it belongs to process {owner.pid} on {owner.host}; clean it from there, or by force"
    if owner.boot_id == me.boot_id and not _same_namespace(owner, me):
        return f"it belongs to process {owner.pid} of another container; clean it from there, or by force"
    if is_running(owner, me):
        return f"its owner, process {owner.pid}, is still running; end it first, or clean by force"
    return ""


def is_running(owner: Owner, me: Owner) -> bool:
    """Whether ``owner`` is a running process that ``me`` sees in /proc."""
    here = owner.host == me.host and owner.boot_id == me.boot_id and _same_namespace(owner, me)
    return here and _start_time(owner.pid) == owner.start_time


def _same_namespace(owner: Owner, me: Owner) -> bool:
    return owner.pid_namespace in {"", me.pid_namespace}


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _start_time(pid: int) -> int | None:
    """Return the process's start in ticks after boot (proc(5), stat field 22), or None.

    A zombie has None, because it has released all resources.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
