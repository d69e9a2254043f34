"""What the mutants of the file system are made with: their table, and what several of them need."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fuse_passthrough import PassThrough
from fuse_protocol import Call
from mutant_row import cells


@dataclass(frozen=True, slots=True)
class FilesMutant:
    """One broken promise. ``section`` is its source, ``files`` is how ``fuse_mount`` names its class.

    ``apart``: of two clients, each has a mount of its own.
    """

    name: str
    section: str
    description: str
    files: str
    apart: bool = False


MUTANTS: dict[str, FilesMutant] = {}

_CALLS = {
    "x86_64": {
        "open": (2, 257, 437), "mkdir": (83, 258), "rename": (82, 264, 316), "link": (86, 265),
        "unlink": (87, 263), "rmdir": (84, 263), "symlink": (88, 266), "mknod": (133, 259),
        "renameat2": (316,), "openat": (257,), "ftruncate": (77,), "exit_group": (231,),
        "sendfile": (40,), "close": (3,), "splice": (275,), "pwritev": (296, 328), "chown": (92, 93, 94, 260),
        "fchmod": (91,), "fchown": (93,),
    },
    "aarch64": {
        "open": (56, 437), "mkdir": (34,), "rename": (38, 276), "link": (37,), "unlink": (35,),
        "rmdir": (35,), "symlink": (36,), "mknod": (33,), "renameat2": (276,), "openat": (56,),
        "ftruncate": (46,), "exit_group": (94,), "sendfile": (71,), "close": (57,),
        "splice": (76,), "pwritev": (70, 287), "chown": (54, 55), "fchmod": (52,), "fchown": (55,),
    },
}  # fmt: skip
"""Numbers of system calls, as the kernel's table for the machine has them (syscalls(2))."""


def mutant(
    row: str, *, table: dict[str, FilesMutant] = MUTANTS, apart: bool = False
) -> Callable[[type[PassThrough]], type[PassThrough]]:
    """Enter a class into the table."""
    name, section, description = cells(row)

    def note(files: type[PassThrough]) -> type[PassThrough]:
        assert name not in table, name
        table[name] = FilesMutant(name, section, description, f"{files.__module__}:{files.__name__}", apart)
        return files

    return note


def overriding(
    change: Callable[..., tuple[Any, ...]], *operations: str
) -> Callable[[type[PassThrough]], type[PassThrough]]:
    """Let these operations of a class run with the arguments that ``change(self, *arguments)`` returns."""

    def override(files: type[PassThrough]) -> type[PassThrough]:
        for operation in operations:
            setattr(files, operation, _with_changed_arguments(files, operation, change))
        return files

    return override


def _with_changed_arguments(
    files: type[PassThrough], operation: str, change: Callable[..., tuple[Any, ...]]
) -> Callable[..., Any]:
    def method(self: PassThrough, *arguments: Any, **named: Any) -> Any:
        return getattr(super(files, self), operation)(*change(self, *arguments), **named)

    return method


def asked_by(call: Call, *names: str) -> bool:
    """Whether one of these system calls waits for the answer."""
    number, _ = call.waits_in()
    table = _CALLS.get(platform.machine(), {})
    return any(number in table[name] for name in names)


_MAKES = {
    "x86_64": {83: 0, 258: 1, 88: 1, 266: 2, 86: 1, 265: 3, 133: 0, 259: 1},
    "aarch64": {34: 1, 36: 2, 37: 3, 33: 1},
}
"""Which argument of mkdir, symlink, link and mknod (and of their ``at``) is the name that they make."""


def makes(call: Call, name: bytes) -> bool:
    """Whether the answer is for a system call that makes ``name``: not for another part of its path."""
    number, words = call.waits_in()
    at = _MAKES.get(platform.machine(), {}).get(number)
    return at is not None and call.name_at(words[at]) == name


def opens_with(call: Call, flag: int) -> bool:
    """Whether the answer is for an openat(2) with ``flag``."""
    number, words = call.waits_in()
    return number in _CALLS.get(platform.machine(), {}).get("openat", ()) and bool(words[2] & flag)


class Keeping(PassThrough):
    """Honest; it keeps every node, so that no inode, and nothing known of one, becomes another file's."""

    def forget(self, node: int, times: int) -> None:
        """Keep the node."""


def size_of(fd: int) -> int:
    return os.fstat(fd).st_size
