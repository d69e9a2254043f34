"""Processes of this machine, as /proc shows them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from storagetest.polling import wait_until


def processes() -> Iterator[tuple[int, int, str]]:
    """Yield (pid, parent's pid, command line) of every process except zombies."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (directory / "stat").read_text().rpartition(")")[2].split()[:2]
            line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if state not in "ZX":
            yield int(directory.name), int(parent), line


def children(pid: int) -> set[int]:
    return {child for child, parent, _ in processes() if parent == pid}


def parent_of(pid: int) -> int:
    return next(parent for child, parent, _ in processes() if child == pid)


def running(pids: Iterable[int]) -> set[int]:
    """Return those of ``pids`` that are processes, and no zombies."""
    return {pid for pid, _, _ in processes()}.intersection(pids)


def wait_until_gone(*pids: int) -> None:
    wait_until(lambda: not running(pids), 20, f"the end of the processes {pids}", interval=0.05)
