"""fsx, the file system exerciser: random operations on one file; each read is compared.

This is the Rust crate (``cargo install fsx``). The C programs of the same name in LTP and xfstests have other
options. Each test is a mix of operations with a constant seed, so that a failure can be reproduced.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import ClassVar

from storagetest.external.base import ClientSuite, Invocation, ItemOutcome, ItemResult, register

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
"""Test → (seed, weight of each operation)."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MISMATCH = re.compile(r"^\[ERROR fsx\] (.+)$", re.MULTILINE)
_REFUSED = re.compile(r'Os \{ code: (\d+), kind: \w+, message: "([^"]+)" \}')


@register
class Fsx(ClientSuite):
    """The crate fsx, run on the client: one file, random operations, each read compared."""

    name: ClassVar[str] = "fsx"
    program: ClassVar[str] = "fsx"
    package: ClassVar[str] = "`cargo install fsx`"
    tests: ClassVar[tuple[str, ...]] = tuple(_MIXES)

    def files(self, test: str) -> Mapping[str, str]:
        """Return the configuration file with the weights of the operations."""
        _, weights = _MIXES[test]
        lines = [f"{name} = {weight}" for name, weight in weights.items()]
        return {"fsx.toml": "\n".join(["[weights]", *lines, ""])}

    def invocation(self, test: str, *, program: str, place: str, scratch: str) -> Invocation:
        """Return the command for one mix. fsx writes the artifacts of a failure to ``scratch``."""
        seed, _ = _MIXES[test]
        argv = (program, "-N", str(_OPERATIONS), "-S", str(seed), "-f", f"{scratch}/fsx.toml", "-P", scratch)
        return Invocation((*argv, f"{place}/fsx"), deadline=_DEADLINE)

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Return the first error that fsx reports. A call that fails ends fsx with a panic."""
        if status == 0:
            return ItemResult(ItemOutcome.PASSED)
        output = _COLOUR.sub("", stdout + stderr).strip()
        tail = "\n".join(output.splitlines()[:60])
        mismatch, refused = _MISMATCH.search(output), _REFUSED.search(output)
        if refused is not None:
            number, text = int(refused[1]), refused[2]
            if test == "allocated" and number == errno.EOPNOTSUPP:
                return ItemResult(ItemOutcome.SKIPPED, f"posix_fallocate: {text}")
            return ItemResult(ItemOutcome.FAILED, f"a call that must succeed failed: {text}", tail)
        if mismatch is not None:
            return ItemResult(ItemOutcome.FAILED, mismatch[1], tail)
        return ItemResult(ItemOutcome.BROKEN, f"{test}: exit status {status}", tail)
