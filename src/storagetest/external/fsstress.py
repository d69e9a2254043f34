"""fsstress: processes that run random operations on a tree of files (from LTP or xfstests).

It compares no data. The test passes if fsstress ends and the tree can then be listed and removed. It detects
a target that hangs or loses a name, not one that returns wrong data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from storagetest.external.base import ClientSuite, Invocation, ItemOutcome, ItemResult, register

_DEADLINE = 600.0
_TESTS: Mapping[str, tuple[int, int, int]] = {"one-process": (1, 1000, 1), "eight-processes": (8, 300, 2)}
"""Test → (processes, operations of each, seed)."""

_SCRIPT = 'command -v "$1" >/dev/null || exit 127; "$@" && ls -lR "$3" >/dev/null && rm -rf "$3"/*'


@register
class Fsstress(ClientSuite):
    """fsstress, run on the client: random operations on a tree, which is listed and removed at the end."""

    name: ClassVar[str] = "fsstress"
    program: ClassVar[str] = "fsstress"
    package: ClassVar[str] = "LTP (testcases/bin/fsstress) or xfstests (ltp/fsstress); `program` is its path"
    tests: ClassVar[tuple[str, ...]] = tuple(_TESTS)

    def invocation(self, test: str, *, program: str, place: str, scratch: str) -> Invocation:  # noqa: ARG002  # nothing is read
        """Return the command that runs one test, then lists and removes the tree."""
        processes, operations, seed = _TESTS[test]
        argv = (program, "-d", place, "-p", str(processes), "-n", str(operations), "-s", str(seed))
        return Invocation(("sh", "-c", _SCRIPT, "sh", *argv), deadline=_DEADLINE)

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Pass if the program, the listing and the removal succeed."""
        if status == 0:
            return ItemResult(ItemOutcome.PASSED)
        tail = "\n".join((stdout + stderr).strip().splitlines()[-20:])
        if status == 127 or "usage" in tail.lower():
            return ItemResult(ItemOutcome.BROKEN, f"{test}: exit status {status}", tail)
        reason = next(
            (line for line in reversed(stderr.strip().splitlines()) if line), f"exit status {status}"
        )
        return ItemResult(ItemOutcome.FAILED, reason, tail)
