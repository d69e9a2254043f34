"""pjdfstest: POSIX tests of each file system call (the runner in Rust, ``cargo install pjdfstest``).

There is one item for each system call. The tests switch to three users that every Linux has, each with the
group of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from storagetest.external.base import ClientSuite, Invocation, ItemOutcome, ItemResult, register

_DEADLINE = 600.0
_CALLS = (
    "chmod",
    "chown",
    "ftruncate",
    "link",
    "mkdir",
    "mkfifo",
    "mknod",
    "open",
    "posix_fallocate",
    "rename",
    "rmdir",
    "symlink",
    "truncate",
    "unlink",
    "utimensat",
)
_USERS = ("bin", "daemon", "mail")
_SETTINGS = """\
[features]
posix_fallocate = {{}}
utime_now = {{}}
utimensat = {{}}

[settings]
naptime = 0.1
allow_remount = false

[dummy_auth]
entries = [{entries}]
"""
_RUN = 'chmod 0755 "$1" && ln -s -- "$2" "$1/d" && exec "$3" -c "$4" -p "$1/d" -- "$5"'
"""Run the tests below a short name of the directory, which the tests' users can reach.

The tests bind sockets at names that are 55 bytes longer, and sun_path holds 107 (unix(7)): the name of a
directory on a mount is too long.
"""
_ENDED = re.compile(r"^(\S+::\S+)\s+(ok|FAILED|skipped)$", re.MULTILINE)
_SUMMARY = "\nSummary: "


@register
class Pjdfstest(ClientSuite):
    """The POSIX file system tests by Pawel Jakub Dawidek, as rewritten in Rust, run on the client."""

    name: ClassVar[str] = "pjdfstest"
    program: ClassVar[str] = "pjdfstest"
    package: ClassVar[str] = "`cargo install pjdfstest`"
    tests: ClassVar[tuple[str, ...]] = _CALLS

    def files(self, test: str) -> Mapping[str, str]:  # noqa: ARG002  # the same for all
        """Return the runner's settings."""
        entries = ", ".join(f'["{name}", "{name}"]' for name in _USERS)
        return {"pjdfstest.toml": _SETTINGS.format(entries=entries)}

    def invocation(self, test: str, *, program: str, place: str, scratch: str) -> Invocation:
        """Return the command that runs the tests of one system call."""
        settings = f"{scratch}/pjdfstest.toml"
        argv = ("sh", "-c", _RUN, "sh", scratch, place, program, settings, f"{test}::")
        return Invocation(argv, deadline=_DEADLINE)

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Count the outcomes of this call's tests. The pattern ``link::`` also runs those of ``unlink``."""
        if _SUMMARY not in stdout:
            tail = "\n".join((stdout + stderr).strip().splitlines()[-20:])
            return ItemResult(ItemOutcome.BROKEN, f"{test}: exit status {status} and no summary", tail)
        ended = {name: word for name, word in _ENDED.findall(stdout) if name.startswith(f"{test}::")}
        failed = [name for name, word in ended.items() if word == "FAILED"]
        passed = sum(word == "ok" for word in ended.values())
        if failed:
            shown = ", ".join(failed[:3]) + " …" * (len(failed) > 3)
            output = _without_backtraces(stdout)
            return ItemResult(ItemOutcome.FAILED, f"{len(failed)} of {len(ended)} fail: {shown}", output)
        if not passed:
            return ItemResult(ItemOutcome.SKIPPED, f"the program skips all {len(ended)} tests of {test}")
        return ItemResult(ItemOutcome.PASSED)


def _without_backtraces(output: str) -> str:
    """Remove the stack of each failed test."""
    lines, within = [], False
    for line in output.splitlines():
        within = line == "Backtrace:" or (within and line.startswith("  "))
        if not within:
            lines.append(line)
    return "\n".join(lines)
