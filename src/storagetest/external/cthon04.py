"""cthon04, the Connectathon tests for NFS: basic, general, special and lock (``runtests`` of a built tree).

The tests run from their own directory, so ``program`` is that directory. They are old: what they take for a
failure is sometimes only a client that caches; see the findings before believing one.
"""

from __future__ import annotations

from typing import ClassVar

from storagetest.external.base import ClientSuite, Invocation, ItemOutcome, ItemResult, register

__all__ = ["Cthon04"]

_DEADLINE = 900.0
_PARTS = {"basic": "-b", "general": "-g", "special": "-s", "lock": "-l"}
_END = "All tests completed"


@register
class Cthon04(ClientSuite):
    """The Connectathon tests, run on the client: one item for each of their four parts."""

    name: ClassVar[str] = "cthon04"
    program: ClassVar[str] = "/opt/cthon04"
    package: ClassVar[str] = "the Connectathon tests, built; say where with `program`"
    tests: ClassVar[tuple[str, ...]] = tuple(_PARTS)

    def presence(self, program: str) -> tuple[str, ...]:
        """Return a look for the script and for what it runs: the tree has to be built."""
        return ("sh", "-c", 'test -x "$1/runtests" && test -x "$1/basic/test1"', "sh", program)

    def invocation(self, test: str, *, program: str, place: str, scratch: str) -> Invocation:  # noqa: ARG002  # nothing is read
        """Return the run of one part, for function and not for time (``-f``)."""
        script = 'cd "$1" && exec ./runtests "$2" -f "$3"'
        return Invocation(("sh", "-c", script, "sh", program, _PARTS[test], f"{place}/t"), deadline=_DEADLINE)

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Pass where it says that all tests were completed; its exit status alone says too little."""
        said = (stdout + "\n" + stderr).strip()
        if status == 0 and _END in stdout:
            return ItemResult(ItemOutcome.PASSED)
        tail = "\n".join(said.splitlines()[-30:])
        reason = next((line.strip() for line in said.splitlines() if "fail" in line.lower()), "")
        if reason:
            return ItemResult(ItemOutcome.FAILED, reason, tail)
        return ItemResult(ItemOutcome.BROKEN, f"{test}: exit status {status} and no end", tail)
