"""pynfs: its tests of NFSv4.0 and of NFSv4.1 and 4.2, one pytest item per test code.

pynfs exits with 0 if tests fail, and prints all results at the end of a run, so the program runs once per
code. It removes the directories ``tree`` and ``tmp`` below its path. Therefore its path is a directory of the
run's own in the export, which is removed at the end.

The program is ``nfs4.0/testserver.py`` or ``nfs4.1/testserver.py`` of a pynfs that was built in its place;
``program`` in the file of the suite names it.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from storagetest.external.base import (
    ControllerSuite,
    Invocation,
    ItemOutcome,
    ItemResult,
    TargetInfo,
    register,
)
from storagetest.hosts.run_directories import is_left, new_name
from storagetest.wire.nfs4.harness import Nfs4Endpoint, Nfs4Facts, clean_up, look

_CODE = re.compile(r"^[A-Z][A-Za-z0-9_]*$", re.MULTILINE)
_RESULT = r"^{}\s+\S+\s+: ([A-Z][A-Z ]*[A-Z])\n((?:[ \t]+\S.*\n)*)"
_OUTCOMES = {
    "PASS": ItemOutcome.PASSED,
    "FAILURE": ItemOutcome.FAILED,
    "WARNING": ItemOutcome.WARNED,
    "UNSUPPORTED": ItemOutcome.SKIPPED,
    "OMIT": ItemOutcome.SKIPPED,
}
_DEADLINE = 300.0
"""Seconds of one test; some wait for two leases of 90 s (chosen)."""


class Pynfs(ControllerSuite):
    """The tests of one of pynfs's two directories, run on this machine."""

    needs: ClassVar[frozenset[str]] = frozenset({"nfs4-wire"})
    program: ClassVar[str] = "testserver.py"
    beside_program: ClassVar[bool] = True

    def listing(self) -> Invocation:
        """Return ``testserver.py --showcodes``."""
        return Invocation((self.program, "--showcodes"), deadline=30.0)

    def tests(self, stdout: str) -> tuple[str, ...]:
        """Return the codes."""
        return tuple(dict.fromkeys(_CODE.findall(stdout)))

    def invocation(self, test: str, options: Any, info: TargetInfo) -> Invocation:  # noqa: ANN401, ARG002  # Nfs.Options
        """Return the command that runs one test, after those that it depends on."""
        assert isinstance(info.made, Nfs4Facts)
        facts, endpoint = info.made, info.made.endpoint
        address = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
        path = f"{endpoint.export.rstrip('/')}/{facts.name.decode()}"
        url = f"nfs://{address}:{endpoint.port}{path}"
        flags = ["--maketree", "--rundeps", "--showomit", *(["--secure"] if endpoint.low_ports else [])]
        return Invocation((self.program, url, *flags, test), deadline=_DEADLINE)

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Return the result of the test; it depends on others, whose results are in the output, too."""
        found = re.search(_RESULT.format(re.escape(test)), stdout, re.MULTILINE)
        if found is None:
            tail = "\n".join((stdout + stderr).strip().splitlines()[-8:])
            return ItemResult(ItemOutcome.BROKEN, f"{test}: exit status {status} and no result", tail)
        word, text = found.groups()
        details = "\n".join(line.strip() for line in text.splitlines())
        reason = details.replace("\n", " ")
        outcome = _OUTCOMES.get(word, ItemOutcome.BROKEN)
        if outcome is ItemOutcome.PASSED:
            return ItemResult(outcome)
        return ItemResult(outcome, f"{word}: {reason}" if reason else word, details)

    def look(self, options: Any) -> TargetInfo:  # noqa: ANN401  # Nfs.Options
        """Make the run's directory in the export."""
        address, port = options.wire_endpoint(options.address, options.port)
        endpoint = Nfs4Endpoint(address, port, options.export, options.deadline)
        facts = look(endpoint, new_name(), is_left=is_left)
        return TargetInfo(facts.implementation, made=facts)

    def look_again(self, options: Any) -> None:  # noqa: ANN401  # Nfs.Options
        """Look as before the first test, and remove what that look made."""
        self.release(options, self.look(options))

    def release(self, options: Any, info: TargetInfo) -> None:  # noqa: ANN401, ARG002  # Nfs.Options
        """Remove the run's directory."""
        if isinstance(info.made, Nfs4Facts):
            clean_up(info.made)


@register
class Pynfs40(Pynfs):
    """pynfs of NFSv4.0."""

    name: ClassVar[str] = "pynfs-4.0"
    package: ClassVar[str] = "pynfs, nfs4.0/testserver.py, built in its place"


@register
class Pynfs41(Pynfs):
    """pynfs of NFSv4.1 and 4.2."""

    name: ClassVar[str] = "pynfs-4.1"
    package: ClassVar[str] = "pynfs, nfs4.1/testserver.py, built in its place"
