"""Samba's smbtorture: its smb2 suites, one pytest item per test (smbtorture(1)).

A run of whole suites loses all later results if the program crashes, so the program runs once per test. It
prints subunit version 1: ``success: NAME``, or ``failure: NAME [`` and the reason up to a line ``]``.

The tests create files with constant names in the root of the share and remove what has these names.
Therefore they run only on a share that is empty before the first test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any, ClassVar

from storagetest.errors import AttachError
from storagetest.external.base import (
    ControllerSuite,
    Invocation,
    ItemOutcome,
    ItemResult,
    TargetInfo,
    register,
)
from storagetest.wire.smb2.client import Account
from storagetest.wire.smb2.codes import Access, Disposition, Options, SmbStatus
from storagetest.wire.smb2.harness import SmbEndpoint, SmbHarness, entries

_TEST = re.compile(r"^(smb2\.\S+)$", re.MULTILINE)
_RESULT = re.compile(r"^(success|failure|error|skip): (\S+)( \[)?$")
_SOURCE = re.compile(r"^\S*?([\w-]+\.c:\d+): ")
_OUTCOMES = {
    "success": ItemOutcome.PASSED,
    "failure": ItemOutcome.FAILED,
    "error": ItemOutcome.FAILED,
    "skip": ItemOutcome.SKIPPED,
}
_DEADLINE = 120.0
"""Seconds of one test (chosen)."""
_LONG = {"smb2.maxfid": 900.0, "smb2.notify.mask": 900.0, "smb2.dir.large-files": 900.0}
"""Seconds of tests with thousands of files or waits: 50 to 120 s on a busy machine (measured)."""
_SEED = "--seed=1"
_SHOWN = 3


@register
class Smbtorture(ControllerSuite):
    """Samba's smbtorture, run on this machine."""

    name: ClassVar[str] = "smbtorture"
    needs: ClassVar[frozenset[str]] = frozenset({"smb-wire"})
    program: ClassVar[str] = "smbtorture"
    package: ClassVar[str] = "samba-testsuite (Debian) or samba-test"

    def listing(self) -> Invocation:
        """Return ``smbtorture --list``."""
        return Invocation((self.program, "--list"), deadline=30.0)

    def tests(self, stdout: str) -> tuple[str, ...]:
        """Return the names of the smb2 suites' tests, without a last part that repeats the one before."""
        names = dict.fromkeys(_TEST.findall(stdout))
        short = {name: re.sub(r"\.([^.]+)\.\1$", r".\1", name) for name in names}
        return tuple(dict.fromkeys(name if short[name] in names else short[name] for name in names))

    def invocation(self, test: str, options: Any, info: TargetInfo) -> Invocation:  # noqa: ANN401, ARG002  # Smb.Options
        """Return the command that runs one test. It reads the password from an environment variable."""
        address, port = options.wire_endpoint(options.address, options.port)
        argv = [
            self.program,
            f"//{address}/{options.share}",
            f"--smb-ports={port}",
            "--format=subunit",
            _SEED,
            f"--user={options.username}",
            *([f"--workgroup={options.domain}"] if options.domain else []),
            test,
        ]
        return Invocation(tuple(argv), {"PASSWD": options.password.reveal()}, _LONG.get(test, _DEADLINE))

    def reader(self) -> Callable[[str], tuple[str, ItemResult] | None]:
        """Return a parser of subunit's lines (:class:`_SubunitReader`)."""
        return _SubunitReader().feed

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Return the result of the last test in the output.

        BROKEN if there is none, if the last one that began has none, or if success ends in an error status.
        """
        reader = _SubunitReader()
        results = [one for line in stdout.splitlines() if (one := reader.feed(line)) is not None]
        if not results or reader.running:
            tail = "\n".join((stdout + stderr).strip().splitlines()[-8:])
            what = f"no result of {reader.running}" if results else "no result"
            return ItemResult(ItemOutcome.BROKEN, f"{test}: exit status {status} and {what}", tail)
        _, result = results[-1]
        if result.ended is ItemOutcome.PASSED:
            if status:
                return ItemResult(ItemOutcome.BROKEN, f"{test}: success, but exit status {status}", stderr)
            return result
        return ItemResult(result.ended, result.reason, f"{result.details}\n{stderr}".strip())

    def look(self, options: Any) -> TargetInfo:  # noqa: ANN401  # Smb.Options
        """Log in; the suite may run if the root of the share is empty."""
        address, port = options.wire_endpoint(options.address, options.port)
        account = Account(options.username, options.password.reveal(), options.domain)
        with SmbHarness(SmbEndpoint(address, port, options.share, account, options.deadline)) as harness:
            root = harness.tree().open(
                "",
                access=Access.GENERIC_READ,
                disposition=Disposition.OPEN,
                options=Options.DIRECTORY_FILE,
            )
            others = (entry.name for entry in entries(root) if entry.name not in {".", ".."})
            found = list(islice(others, _SHOWN + 1))
            status = SmbStatus.NO_MORE_FILES if found else root.list(pattern="*").status
        if status != SmbStatus.NO_MORE_FILES:  # a refused listing is no proof that the share is empty
            raise AttachError(
                f"share {options.share}: the listing of its root ended with {SmbStatus.name_of(status)}, so "
                "it is not known whether the share is empty"
            )
        if not found:
            return TargetInfo(may_erase=True)
        shown = ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
        return TargetInfo(
            at_risk=f"share {options.share} contains {shown}: smbtorture removes files in its root. "
            "Name a share that is empty."
        )


class _SubunitReader:
    """Read subunit version 1 line by line: ``test: NAME`` begins a test, a result with its reason ends it."""

    def __init__(self) -> None:
        self.running = ""
        """Name of the test that began and has no result yet."""
        self._head: tuple[str, str] | None = None
        self._reason: list[str] = []

    def feed(self, line: str) -> tuple[str, ItemResult] | None:
        """Return the name and the result of the test that ``line`` ends; None if it ends none."""
        if self._head is not None:
            if line.rstrip() != "]":
                self._reason.append(line)
                return None
            return self._end(*self._head)
        if line.startswith("test: "):
            self.running = line.removeprefix("test: ").strip()
        found = _RESULT.match(line)
        if found is None:
            return None
        word, name, bracket = found.groups()
        if not bracket:
            return self._end(word, name)
        self._head, self.running = (word, name), name
        return None

    def _end(self, word: str, name: str) -> tuple[str, ItemResult]:
        text = "\n".join(self._reason).strip()
        self._head, self._reason, self.running = None, [], ""
        outcome = _OUTCOMES[word]
        if outcome is ItemOutcome.PASSED:
            return name, ItemResult(outcome)
        reason, _, more = _SOURCE.sub(r"\1: ", text).partition("\n")
        return name, ItemResult(outcome, reason or f"{word} without a reason", more)
