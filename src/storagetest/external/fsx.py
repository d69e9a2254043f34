"""fsx, the file system exerciser: random operations on one file, every read compared.

This is the Rust crate (``cargo install fsx``); the C programs of that name, in LTP and xfstests, take other
options. Each test is a mix of operations with a seed of its own, so that what it found can be run again.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import ClassVar

from storagetest.external.base import ClientSuite, Invocation, ItemOutcome, ItemResult, register

__all__ = ["Fsx"]

_OPERATIONS = 5000
_DEADLINE = 300.0

_USUAL = {
    "close_open": 1,
    "read": 10,
    "write": 10,
    "mapread": 10,
    "mapwrite": 10,
    "invalidate": 1,
    "truncate": 5,
    "fsync": 1,
    "fdatasync": 1,
}
_MIXES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "all": (1, _USUAL),
    "read-write": (2, {**_USUAL, "mapread": 0, "mapwrite": 0, "invalidate": 0}),
    "mapped": (3, {**_USUAL, "read": 0, "write": 0, "mapread": 20, "mapwrite": 20}),
    "reopened": (4, {**_USUAL, "close_open": 20}),
    "truncated": (5, {**_USUAL, "truncate": 30}),
    "allocated": (6, {**_USUAL, "posix_fallocate": 10}),
}
"""Test → (seed, how often each operation comes)."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FOUND = re.compile(r"^\[ERROR fsx\] (.+)$", re.MULTILINE)
_REFUSED = re.compile(r'Os \{ code: (\d+), kind: \w+, message: "([^"]+)" \}')


@register
class Fsx(ClientSuite):
    """The crate fsx, run on the client: one file, random operations, every read compared."""

    name: ClassVar[str] = "fsx"
    program: ClassVar[str] = "fsx"
    package: ClassVar[str] = "`cargo install fsx`"
    tests: ClassVar[tuple[str, ...]] = tuple(_MIXES)

    def files(self, test: str) -> Mapping[str, str]:
        """Return the mix of operations, in fsx's own words."""
        _, weights = _MIXES[test]
        lines = [f"{name} = {weight}" for name, weight in weights.items()]
        return {"fsx.toml": "\n".join(["[weights]", *lines, ""])}

    def invocation(self, test: str, *, program: str, place: str, scratch: str) -> Invocation:
        """Return the run of one mix; what fsx keeps of a failure stays in ``scratch``."""
        seed, _ = _MIXES[test]
        argv = (program, "-N", str(_OPERATIONS), "-S", str(seed), "-f", f"{scratch}/fsx.toml", "-P", scratch)
        return Invocation((*argv, f"{place}/fsx"), deadline=_DEADLINE)

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Read what fsx found first; a call that is refused ends it with a panic."""
        if status == 0:
            return ItemResult(ItemOutcome.PASSED)
        said = _COLOUR.sub("", stdout + stderr).strip()
        tail = "\n".join(said.splitlines()[:60])
        found, refused = _FOUND.search(said), _REFUSED.search(said)
        if refused is not None:
            number, words = int(refused[1]), refused[2]
            if test == "allocated" and number == errno.EOPNOTSUPP:
                return ItemResult(ItemOutcome.SKIPPED, f"posix_fallocate: {words}")
            return ItemResult(ItemOutcome.FAILED, f"a call that is to succeed was refused: {words}", tail)
        if found is not None:
            return ItemResult(ItemOutcome.FAILED, found[1], tail)
        return ItemResult(ItemOutcome.BROKEN, f"{test}: exit status {status}", tail)
