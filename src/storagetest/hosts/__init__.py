"""Somewhere to run a command and to leave or fetch a file, here or over SSH, and to leave nothing behind."""

from __future__ import annotations

from storagetest.hosts.base import Completed, Host, failed
from storagetest.hosts.interactive import InteractiveProcess
from storagetest.hosts.local import LocalHost
from storagetest.hosts.slurm import SlurmHost
from storagetest.hosts.ssh import SshHost, SshSettings
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

__all__ = [
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
    "failed",
]
