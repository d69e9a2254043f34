"""cthon04, the Connectathon tests for NFS: basic, general, special and lock (``runtests`` of a built tree).

The tests run from their own directory, so ``program`` is that directory. They are old, and some report a
client's caching as a failure: see docs/findings before you report one.
"""

from __future__ import annotations

from typing import ClassVar

from storagetest.external.base import ClientSuite, Invocation, ItemOutcome, ItemResult, register

_DEADLINE = 900.0
_PARTS = {"basic": "-b", "general": "-g", "special": "-s", "lock": "-l"}
_END = "All tests completed"


@register
class Cthon04(ClientSuite):
    """The Connectathon tests, run on the client: one item for each of their four parts."""

    name: ClassVar[str] = "cthon04"
    program: ClassVar[str] = "/opt/cthon04"
    package: ClassVar[str] = "the Connectathon tests, built; set `program` to their directory"
    tests: ClassVar[tuple[str, ...]] = tuple(_PARTS)

    def presence(self, program: str) -> tuple[str, ...]:
        """Return a test for the script and for one program that it runs: the tree must be built."""
        return ("sh", "-c", 'test -x "$1/runtests" && test -x "$1/basic/test1"', "sh", program)

    def invocation(self, test: str, *, program: str, place: str, scratch: str) -> Invocation:  # noqa: ARG002  # nothing is read
        """Return the command for one part, functional tests only (``-f``)."""
        script = 'cd "$1" && exec ./runtests "$2" -f "$3"'
        return Invocation(("sh", "-c", script, "sh", program, _PARTS[test], f"{place}/t"), deadline=_DEADLINE)

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Pass if the exit status is 0 and the output reports that all tests were completed."""
        output = (stdout + "\n" + stderr).strip()
        if status == 0 and _END in stdout:
            return ItemResult(ItemOutcome.PASSED)
        tail = "\n".join(output.splitlines()[-30:])
        reason = next((line.strip() for line in output.splitlines() if "fail" in line.lower()), "")
        if reason:
            return ItemResult(ItemOutcome.FAILED, reason, tail)
        return ItemResult(ItemOutcome.BROKEN, f"{test}: exit status {status} and no end", tail)
