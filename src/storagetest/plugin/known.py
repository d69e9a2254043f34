"""Known issues: the cases that ``known_issues`` of the targets file names are expected to fail, for a while.

Rules:

1. Such a case fails and is *known* (xfailed). Where it passes, that is a failure until the entry goes
   (``strict: false``: one that does not always fail). What is no claim about the target stays an error.
2. After its last day an entry excuses nothing: what fails fails, and says whose entry has expired; what
   passes fails too, until the entry goes.
3. A glob that matches no case is an error with its place, where all cases that it could mean were collected:
   from whole directories, and either another case of the same family (``PSX`` of ``PSX-OPEN-EXCL``) is among
   them, or every suite is.

:func:`expect_failure` is what the tables beside the suites use, too: for what implementations are known to
break (``known.toml``).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from storagetest.config.known import KnownIssue
from storagetest.errors import RemoteProtocolError
from storagetest.plugin.conformance import case_of
from storagetest.plugin.matrix import item_variant
from storagetest.plugin.state import KEY

__all__ = ["CLAIMS", "expect_failure"]

CLAIMS = (AssertionError, RemoteProtocolError, pytest.fail.Exception)
"""What a case raises where the target breaks its promise; anything else is no known issue."""

_KNOWN = pytest.StashKey[str]()
_ISSUE = pytest.StashKey[KnownIssue]()
_EXPIRED = pytest.StashKey[KnownIssue]()
_STATE = "storagetest_known"
"""What is said of an entry at the end, on the report: (what became of it, its words)."""


def expect_failure(item: pytest.Item, reason: str, *, strict: bool = True) -> None:
    """Expect ``item`` to fail because of ``reason``; where it is ``strict``, passing is a failure."""
    item.stash[_KNOWN] = reason
    item.add_marker(pytest.mark.xfail(reason=reason, strict=strict, raises=CLAIMS))


def pytest_configure(config: pytest.Config) -> None:
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
    today = datetime.now().astimezone().date()
    cases = {item: case.id for item in items if (case := case_of(item)) is not None}
    _refuse_unknown(issues, set(cases.values()), _whole(config, cases))
    for item, name in cases.items():
        identifier = item_variant(item)
        if identifier is None:
            continue
        covering = [one for one in issues if one.covers(name, state.variants[identifier])]
        if covering:
            _mark(item, max(covering, key=lambda one: one.expires), today)


def _mark(item: pytest.Item, issue: KnownIssue, today: date) -> None:
    if issue.expires < today:
        item.stash[_EXPIRED] = issue
    else:
        item.stash[_ISSUE] = issue
        expect_failure(item, f"known until {issue.expires}: {issue}", strict=issue.strict)


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
    issue = item.stash.get(_EXPIRED, None)
    said = "" if issue is None else f"this was a known issue until {issue.expires}: {issue}"
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
    reason = item.stash.get(_KNOWN, "")
    if report.when != "call":
        return report
    fixed = bool(reason) and report.failed and call.excinfo is None  # a strict xfail that passed
    if fixed:
        report.longrepr = f"it passes: take the entry out ({reason})"
    issue, expired = item.stash.get(_ISSUE, None), item.stash.get(_EXPIRED, None)
    if expired is not None:
        setattr(report, _STATE, ("EXPIRED", f"{expired.expires}: {expired}"))
    elif issue is not None and (fixed or hasattr(report, "wasxfail")):
        setattr(report, _STATE, ("PASSES" if fixed else "known", f"until {issue.expires}: {issue}"))
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
