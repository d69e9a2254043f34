"""Known issues: cases that are expected to fail, for a while.

``known_issues`` of the targets file names them, and so does a table beside a suite
(:mod:`storagetest.plugin.deviations`). Rules:

1. Such a case fails and is *known* (xfailed). Where it passes, that is a failure until the entry goes
   (``strict: false``: one that does not always fail). What is no claim about the target stays an error.
2. After its last day an entry excuses nothing: what fails fails, and says whose entry has expired; what
   passes fails too, until the entry goes.
3. Of several entries for a case the one that lasts longest counts.
4. A glob of the targets file that matches no case is an error with its place, where all cases that it could
   mean were collected: from whole directories, and either another case of the same family (``PSX`` of
   ``PSX-OPEN-EXCL``) is among them, or every suite is.
5. The summary has a line for each entry of the targets file, and of a table for one that goes: what every
   server of a kind breaks would fill the screen.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from storagetest.config.known import KnownIssue
from storagetest.errors import RemoteProtocolError
from storagetest.plugin.conformance.cases import case_of
from storagetest.plugin.parametrize import item_variant
from storagetest.plugin.run_state import KEY

__all__ = ["CLAIMS", "expect_known", "register"]

CLAIMS = (AssertionError, RemoteProtocolError, pytest.fail.Exception)
"""What a case raises where the target breaks its promise; anything else is no known issue."""

_ISSUE = pytest.StashKey[KnownIssue]()
"""The entry that counts for a case."""

_LISTED = pytest.StashKey[bool]()
"""Whether the summary has a line for it while it is merely known."""

_STATE = "storagetest_known"
"""What is said of an entry at the end, on the report: (what became of it, its words)."""


def expect_known(item: pytest.Item, issue: KnownIssue, *, listed: bool = False) -> bool:
    """Expect ``item`` to fail because of ``issue``, unless its day is over; return whether that is expected.

    Of several issues for one case the one that lasts longest counts.
    """
    before = item.stash.get(_ISSUE, None)
    if before is None or before.expires < issue.expires:
        item.stash[_ISSUE], item.stash[_LISTED] = issue, listed
        if not _over(issue):
            mark = pytest.mark.xfail(reason=_words(issue), strict=issue.strict, raises=CLAIMS)
            item.add_marker(mark, append=False)  # pytest takes the first
    return not _over(item.stash[_ISSUE])


def _over(issue: KnownIssue) -> bool:
    return issue.expires < datetime.now().astimezone().date()


def _words(issue: KnownIssue) -> str:
    return f"known until {issue.expires}: {issue}"


def register(config: pytest.Config) -> None:
    """Say at the end what is known and what has expired, once."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Summary(), "storagetest-known")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expect the failures of what is known; refuse what names no case."""
    state = config.stash[KEY]
    if state.loaded is None or not state.loaded.known_issues:
        return
    issues = state.loaded.known_issues
    cases = {item: case.id for item in items if (case := case_of(item)) is not None}
    _refuse_unknown(issues, set(cases.values()), _whole(config, cases))
    for item, name in cases.items():
        identifier = item_variant(item)
        if identifier is None:
            continue
        for issue in issues:
            if issue.covers(name, state.variants[identifier]):
                expect_known(item, issue, listed=True)


def _refuse_unknown(issues: Iterable[KnownIssue], cases: set[str], whole: tuple[bool, bool]) -> None:
    """Raise :class:`pytest.UsageError` for globs that match none of ``cases``, one line each."""
    directories, everything = whole
    families = {_family(case) for case in cases}
    wrong = [
        f"{place}: known_issues: {glob!r} names no case"
        for issue in issues
        for glob, place in issue.cases
        if not any(fnmatchcase(case, glob) for case in cases)
        and (everything or (directories and _family(glob) in families))
    ]
    if wrong:
        raise pytest.UsageError("\n".join(wrong))


def _family(case: str) -> str:
    """Return what an id, or a glob of ids, begins with; "" where a glob does not say."""
    found = re.match(r"([^-*?\[]+)(-|$)", case)
    return found[1] if found else ""


def _whole(config: pytest.Config, items: Iterable[pytest.Item]) -> tuple[bool, bool]:
    """Whether only whole directories were asked for; and whether all suites' directories were."""
    paths = [Path(config.invocation_params.dir, argument) for argument in config.args]
    narrowed = any(getattr(config.option, name, None) for name in ("ignore", "ignore_glob", "lf"))
    if narrowed or not all(path.is_dir() for path in paths):
        return False, False
    roots = {
        parent for item in items for parent in item.path.parents if parent.name == "conformance"
    }  # suites/conformance, here or installed
    asked = {path.resolve() for path in paths}
    return True, bool(roots) and all(asked & {root, *root.parents} for root in roots)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Say of an expired entry's case that it is so, whatever comes of it."""
    issue = item.stash.get(_ISSUE, None)
    said = (
        "" if issue is None or not _over(issue) else f"this was a known issue until {issue.expires}: {issue}"
    )
    try:
        yield
    except CLAIMS:
        if said:
            item.add_report_section("call", "known issue", f"{said}\nmend it, or agree on another day")
        raise
    if said:
        pytest.fail(f"it passes: take the entry out ({said})", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say in one sentence of a case that passes all at once that its entry goes."""
    report = yield
    issue = item.stash.get(_ISSUE, None)
    if report.when != "call" or issue is None:
        return report
    if _over(issue):
        setattr(report, _STATE, ("EXPIRED", f"{issue.expires}: {issue}"))
    elif report.failed and call.excinfo is None:  # a strict xfail that passed
        report.longrepr = f"it passes: take the entry out ({_words(issue)})"
        setattr(report, _STATE, ("PASSES", f"until {issue.expires}: {issue}"))
    elif hasattr(report, "wasxfail") and item.stash[_LISTED]:
        setattr(report, _STATE, ("known", f"until {issue.expires}: {issue}"))
    return report


class _Summary:
    """Registered in the controller alone."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in what came of a known issue's case."""
        state = getattr(report, _STATE, None)
        if state is not None:
            self._seen.setdefault((state[0], state[1]), []).append(report.nodeid.rpartition("::")[2])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print each entry once, and how many cases it was about."""
        if not self._seen:
            return
        terminalreporter.section("known issues")
        for (state, reason), cases in sorted(self._seen.items()):
            terminalreporter.write_line(f"{state} {reason}: {len(cases)} case{'s' * (len(cases) != 1)}")
