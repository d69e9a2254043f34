"""Hosts: run commands and transfer files, locally, over SSH or in a Slurm job, and undo changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storagetest.hosts._run_mark import ATTACHING_ENV
from storagetest.hosts.base import Completed, Host, failed
from storagetest.hosts.interactive import InteractiveProcess
from storagetest.hosts.left_processes import end_left_commands
from storagetest.hosts.local import LocalHost
from storagetest.hosts.slurm import SlurmHost
from storagetest.hosts.undo_journal import (
    Entry,
    EntryHandle,
    Journal,
    Step,
    UndoResult,
    UndoStatus,
    UnreadableEntry,
    clean,
)

if TYPE_CHECKING:
    from storagetest.hosts._ssh_settings import SshSettings
    from storagetest.hosts.ssh import SshHost

__all__ = [
    "ATTACHING_ENV",
    "Completed",
    "Entry",
    "EntryHandle",
    "Host",
    "InteractiveProcess",
    "Journal",
    "LocalHost",
    "SlurmHost",
    "SshHost",
    "SshSettings",
    "Step",
    "UndoResult",
    "UndoStatus",
    "UnreadableEntry",
    "clean",
    "end_left_commands",
    "failed",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # SshHost or SshSettings
    """Import SshHost and SshSettings at their first use: paramiko is slow to import."""
    if name in {"SshHost", "SshSettings"}:
        from storagetest.hosts import ssh  # noqa: PLC0415  # as above

        return getattr(ssh, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
