"""Known issues: cases that are expected to fail, are not run, or may fail in a certain way.

The entries are in the targets file and in the table next to the suite
(:mod:`storagetest.plugin.conformance.known_issues_table`); foreign suites have entries in their files.
Rules:

1. An expected failure is *known* (xfailed). A case that passes is a failure at every level until the entry is
   removed (``strict: false``: a case that does not always fail). An error that is no claim about the target
   stays an error. A failure that matches none of the ``message`` globs is a failure at every level.
2. An allowed failure is recorded as that of a MAY. If the case passes, it passes.
3. After its last day an entry excuses nothing: a case that fails is a failure, which names the entry; a case
   that passes is a failure until the entry is removed; a case that the entry skips is not run, and fails.
4. If several entries expect a case to fail, the entry that expires last applies.
5. A glob of the targets file that matches no case is an error with its position if all cases that it could
   match were collected: from whole directories, and with either another case of the same family (``PSX`` of
   ``PSX-OPEN-EXCL``) or every suite.
6. An entry about some versions of an implementation applies only if the version is known. The implementation
   is what the targets file claims, completed by what a suite identifies; the two must agree.
7. An entry with ``faults`` is about rules that every reply is judged by, and not about cases
   (:func:`excuse_faults`). While it applies, its sentences are no fault of any case. The record of each case
   that received such a reply has them, and the summary has a line for each target and sentence: ``known``, or
   ``NOT SEEN`` if whole suites ran and no reply had it. That is no failure.
8. The summary has a line for each entry of the targets file. It has a line for an entry of a table only if
   the entry must be removed or renewed. It has a line for each target whose version is not known, if an
   entry does not apply for that reason.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.config.implementations import Implementation
from storagetest.config.known_issues import KnownIssue
from storagetest.errors import ConfigError, RemoteProtocolError
from storagetest.plugin.conformance.cases import (
    DROPPED,
    case_of,
    downgrade_to_may,
    fail_at_every_level,
    note_known_fault,
    note_known_issue,
)
from storagetest.plugin.conformance.causes import NoClaim
from storagetest.plugin.conformance.known_issues_table import read_suite_table
from storagetest.plugin.items import is_worker, suite_directory
from storagetest.plugin.run_state import KEY
from storagetest.report.coverage import KnownFault

CLAIMS = (AssertionError, RemoteProtocolError, pytest.fail.Exception)
"""Exceptions of a false claim about the target; any other exception is no known issue."""

_EXPECTED = pytest.StashKey[KnownIssue]()
"""The expected failure that expires last."""

_ALLOWED = pytest.StashKey[list[KnownIssue]]()
_NOT_RUN = pytest.StashKey[KnownIssue]()
_APPLIED = pytest.StashKey[list[KnownIssue]]()
_NO_VERSION = pytest.StashKey[str]()
"""Why entries about some versions do not apply: the version is not known."""

_FOUND = pytest.StashKey[Implementation]()
"""The implementation of the item's target, as far as it is known."""

_FAULT_STATES = pytest.StashKey[list[tuple[str, str]]]()
"""Of entries with faults: (state of the entry, its text) for the summary."""

_NOT_SEEN = "NOT SEEN"
"""State of an entry with faults that applies to a case, and whose sentence no reply of the case has."""

_STATES = "storagetest_known"
"""Attribute of a report: pairs (state of an entry, its text) for the summary."""

_UNVERSIONED = "storagetest_known_no_version"
"""Attribute of a report: why entries about some versions did not apply."""


class _ExpectedFailure(type):
    """Type for ``raises`` of pytest's xfail mark: claims whose message the entry expects."""

    issue: KnownIssue

    def __instancecheck__(cls, error: object) -> bool:
        return isinstance(error, CLAIMS) and cls.issue.expects(str(error))


def apply_known_issues(
    item: pytest.Item,
    issues: Iterable[KnownIssue],
    case: str,
    variant: Variant,
    *,
    found: Implementation | None = None,
) -> bool:
    """Apply the entries about ``case`` to ``item``; return whether one of them expects it to fail.

    At collection the implementation is the one that the targets file names. A running case passes the one
    that it ``found``; then further entries apply, and the case is skipped if one of them requires it.
    Raises :class:`ConfigError` if the two contradict each other.
    """
    implementation = variant.implementation
    if found is not None:
        try:
            implementation = implementation.merge(found)
        except ValueError as error:
            message = f"targets.{variant.target}.implementation: {error}. Correct it, or remove it."
            raise ConfigError(message, place=variant.place) from None
    item.stash[_FOUND] = implementation
    applied = item.stash.setdefault(_APPLIED, [])
    item.stash[_NO_VERSION] = ""
    for issue in issues:
        covered = issue.covers(case, variant, implementation)
        if covered is None:
            item.stash[_NO_VERSION] = _no_version(variant, implementation)
        if covered and not any(issue is other for other in applied):
            applied.append(issue)
            _apply(item, issue, variant)
    not_run = item.stash.get(_NOT_RUN, None)
    if found is not None and not_run is not None:
        if not_run.is_over():
            _fail_not_run(not_run)
        pytest.skip(f"{variant.id}: {not_run}")
    return any(issue.entry.outcome == "fail" and not issue.is_over() for issue in applied)


def _no_version(variant: Variant, implementation: Implementation) -> str:
    return (
        f"{variant.target}: known issues of {implementation.name} do not apply, because its version is not "
        f"known: write `implementation: {{name: {implementation.name}, version: ...}}` at the target"
    )


def apply_identified(item: pytest.Item, found: Implementation) -> bool:
    """Apply the entries about the implementation that the target reports.

    Returns whether an entry expects the case to fail.
    """
    case, variant = case_of(item), item.config.stash[KEY].variant_of(item)
    if case is None or variant is None:
        return False
    return apply_known_issues(item, _entries(item), case.id, variant, found=found)


def excuse_faults(item: pytest.Item, sentences: Iterable[str]) -> list[str]:
    """Return those of ``sentences`` that no entry has as a known fault of the item's target, each once.

    The known ones are noted for the record of the case and for the summary.
    """
    received = list(dict.fromkeys(sentences))
    left = list(received)
    variant = item.config.stash[KEY].variant_of(item)
    if variant is None:
        return left
    implementation = item.stash.get(_FOUND, variant.implementation)
    states = item.stash.setdefault(_FAULT_STATES, [])
    for issue in _entries(item):
        covered = issue.covers_target(variant, implementation) if issue.entry.faults else False
        for sentence in issue.entry.faults if covered is not False else ():
            text = f"{issue.entry.expires}: {variant.target}: {sentence}: {issue}"
            if sentence not in received:
                if covered and not issue.is_over():
                    states.append((_NOT_SEEN, f"until {text}"))
            elif sentence not in left:
                continue  # another entry has it
            elif covered is None:
                item.stash[_NO_VERSION] = _no_version(variant, implementation)
            elif issue.is_over():
                states.append(("EXPIRED", text))
                item.add_report_section("call", "known issue", _expired_text(issue))
            else:
                left.remove(sentence)
                states.append(("known", f"until {text}"))
                entry = issue.entry
                note_known_fault(item, KnownFault(sentence, entry.reason, entry.reference or ""))
    return left


def _apply(item: pytest.Item, issue: KnownIssue, variant: Variant) -> None:
    if issue.entry.outcome == "allow":
        item.stash.setdefault(_ALLOWED, []).append(issue)
        return
    key = _EXPECTED if issue.entry.outcome == "fail" else _NOT_RUN
    other = item.stash.get(key, None)
    if other is not None and other.last_day >= issue.last_day:
        return
    item.stash[key] = issue
    if issue.entry.outcome == "skip":
        item.add_marker(pytest.mark.skip(reason=f"{variant.id}: {issue}"), append=False)
    elif not issue.is_over():
        raises: Any = _ExpectedFailure("Expected", (Exception,), {"issue": issue})
        mark = pytest.mark.xfail(reason=_text(issue), strict=issue.entry.strict, raises=raises)
        item.add_marker(mark, append=False)  # pytest takes the first
        note_known_issue(item, issue.entry.reason, issue.entry.reference or "")


def _text(issue: KnownIssue) -> str:
    return f"known until {issue.entry.expires}: {issue}"


def _expired_text(issue: KnownIssue) -> str:
    return f"known issue, expired after {issue.entry.expires}: {issue}"


def register(config: pytest.Config) -> None:
    """Register the summary of known and expired entries in the controller."""
    if not is_worker(config):
        config.pluginmanager.register(_Summary(config), "storagetest-known")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Apply the known issues to all cases; refuse globs that match no case."""
    state = config.stash[KEY]
    if state.loaded is None:
        return
    cases = {item: case.id for item in items if (case := case_of(item)) is not None}
    dropped = config.stash.get(DROPPED, frozenset())
    collected = {*cases.values(), *dropped}
    _refuse_unknown(state.loaded.known_issues, collected, _collected_completely(config, cases))
    _refuse_unknown_in_tables(config, cases, dropped)
    applicable: dict[tuple[Path, str], list[KnownIssue]] = {}
    for item, name in cases.items():
        variant = state.variant_of(item)
        if variant is None:
            continue
        key = suite_directory(item.path), variant.id
        if key not in applicable:  # once for thousands of cases
            applicable[key] = [
                issue
                for issue in _entries(item)
                if issue.covers_target(variant, variant.implementation) is not False
            ]
        apply_known_issues(item, applicable[key], name, variant)


def _entries(item: pytest.Item) -> tuple[KnownIssue, ...]:
    """Return the entries that can apply to ``item``: of the targets file and of the suite's directory."""
    loaded = item.config.stash[KEY].loaded
    return (*(loaded.known_issues if loaded else ()), *read_suite_table(item.path.parent))


def _refuse_unknown(issues: Iterable[KnownIssue], cases: set[str], complete: tuple[bool, bool]) -> None:
    """Raise :class:`pytest.UsageError` for globs that match none of ``cases``, one line each."""
    directories, everything = complete
    families = {_family(case) for case in cases}
    wrong = [
        f"{place}: known_issues: {glob!r} matches no case"
        for issue in issues
        for glob, place in issue.cases
        if not any(fnmatchcase(case, glob) for case in cases)
        and (everything or (directories and _family(glob) in families))
    ]
    if wrong:
        raise pytest.UsageError("\n".join(wrong))


def _refuse_unknown_in_tables(
    config: pytest.Config, cases: Mapping[pytest.Item, str], dropped: frozenset[str]
) -> None:
    """Raise :class:`pytest.UsageError` for globs of suites' tables that match no case of their suite.

    A suite is checked if all of its directory was collected. ``dropped`` are the ids of cases that were
    collected, and deselected because no target has their need.
    """
    if not _collected_completely(config, cases)[0]:
        return
    requested = {Path(config.invocation_params.dir, argument).resolve() for argument in config.args}
    of_directory: dict[Path, set[str]] = {}
    for item, case in cases.items():
        of_directory.setdefault(suite_directory(item.path), set()).add(case)
    wrong = [
        f"{place}: known_issues: {glob!r} matches no case of {directory.name}"
        for directory, names in of_directory.items()
        if requested & {directory, *directory.parents}
        for issue in read_suite_table(directory)
        for glob, place in issue.cases
        if not any(fnmatchcase(name, glob) for name in (*names, *dropped))
    ]
    if wrong:
        raise pytest.UsageError("\n".join(wrong))


def _family(case: str) -> str:
    """Return the family of an id or of a glob of ids; "" if a glob has none."""
    match = re.match(r"([^-*?\[]+)(-|$)", case)
    return match[1] if match else ""


def _collected_completely(config: pytest.Config, items: Iterable[pytest.Item]) -> tuple[bool, bool]:
    """Whether all arguments are whole directories, and whether they include the directories of all suites."""
    paths = [Path(config.invocation_params.dir, argument) for argument in config.args]
    narrowed = any(getattr(config.option, name, None) for name in ("ignore", "ignore_glob", "lf"))
    if narrowed or not all(path.is_dir() for path in paths):
        return False, False
    directories = {suite_directory(item.path) for item in items}
    roots = {
        parent for directory in directories for parent in directory.parents if parent.name == "conformance"
    }  # suites/conformance, here or installed
    requested = {path.resolve() for path in paths}
    return True, bool(roots) and all(requested & {root, *root.parents} for root in roots)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a case that an expired entry skips, unless the case has another skip mark."""
    item.stash[_FAULT_STATES] = []
    issue = item.stash.get(_NOT_RUN, None)
    if issue is not None and issue.is_over() and len(list(item.iter_markers("skip"))) == 1:
        _fail_not_run(issue)
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Record an allowed failure as that of a MAY; an expired entry excuses nothing."""
    __tracebackhide__ = True
    try:
        result = yield
    except CLAIMS as error:
        message = str(error)
        allowing = _allowing_entry(item, message)
        if allowing is None:
            _explain(item, message)
            raise
    else:
        expired = _expired(item)
        if expired is not None:
            fail_at_every_level(item)
            raise NoClaim(f"the case passes: remove the entry ({_expired_text(expired)})", pytrace=False)
        return result
    downgrade_to_may(item)
    pytest.fail(f"{allowing}\nobserved: {message}", pytrace=False)


def _allowing_entry(item: pytest.Item, message: str) -> KnownIssue | None:
    """Return the entry that allows ``item`` to fail with ``message``."""
    issues = item.stash.get(_ALLOWED, [])
    return next((issue for issue in issues if issue.expects(message) and not issue.is_over()), None)


def _explain(item: pytest.Item, message: str) -> None:
    """Add to the report why the entry does not excuse the failure."""
    expired, expected = _expired(item), item.stash.get(_EXPECTED, None)
    if expired is not None:
        text = f"{_expired_text(expired)}\ncorrect the target, or agree on a new date"
    elif expected is not None and not expected.expects(message):
        text = _mismatch(expected)
        fail_at_every_level(item)
    elif allowed := item.stash.get(_ALLOWED, []):
        text = "\n".join(map(_mismatch, allowed))
        fail_at_every_level(item)
    elif item.stash.get(_NO_VERSION, ""):
        text = item.stash[_NO_VERSION]
    else:
        return
    item.add_report_section("call", "known issue", text)


def _mismatch(issue: KnownIssue) -> str:
    return f"the failure does not match the entry ({' or '.join(issue.entry.message)}): {issue}"


def _expired(item: pytest.Item) -> KnownIssue | None:
    """Return an expired entry that applies to ``item``, or None."""
    expected = item.stash.get(_EXPECTED, None)
    issues = [*([expected] if expected else []), *item.stash.get(_ALLOWED, [])]
    return next((issue for issue in issues if issue.is_over()), None)


def _fail_not_run(issue: KnownIssue) -> None:
    text = f"not run; {_expired_text(issue)}\ncorrect the target and remove the entry, or agree on a new date"
    pytest.fail(text, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report that an entry must be removed, and add the entry to the report for the summary."""
    if _is_expected(item, call) and not item.config.option.xfail_tb:
        # A known failure is shown by its reason. Its traceback would take longer than most cases.
        item.repr_failure = _message_only  # type: ignore[method-assign]  # pytest calls it for this report
    report = yield
    vars(item).pop("repr_failure", None)
    issue, not_run = item.stash.get(_EXPECTED, None), item.stash.get(_NOT_RUN, None)
    states = list(item.stash.get(_FAULT_STATES, ())) if report.when == "call" else []
    if report.when == "call" and item.stash.get(_NO_VERSION, ""):
        setattr(report, _UNVERSIONED, item.stash[_NO_VERSION])
    if not_run is not None and not_run.is_over() and report.failed:
        states.append(("EXPIRED", f"{not_run.entry.expires}: {not_run}"))
    elif report.when != "call":
        return report
    elif (expired := _expired(item)) is not None:
        states.append(("EXPIRED", f"{expired.entry.expires}: {expired}"))
    elif issue is not None and report.failed and call.excinfo is None:  # a strict xfail that passed
        report.longrepr = f"the case passes: remove the entry ({_text(issue)})"
        fail_at_every_level(item)
        states.append(("PASSES", f"until {issue.entry.expires}: {issue}"))
    elif issue is not None and hasattr(report, "wasxfail") and issue.in_targets_file:
        states.append(("known", f"until {issue.entry.expires}: {issue}"))
    setattr(report, _STATES, states)
    return report


def _is_expected(item: pytest.Item, call: pytest.CallInfo[None]) -> bool:
    """Whether the call failed as an entry expects."""
    issue, error = item.stash.get(_EXPECTED, None), call.excinfo.value if call.excinfo is not None else None
    return (
        issue is not None and isinstance(error, CLAIMS) and issue.expects(str(error)) and not issue.is_over()
    )


def _message_only(
    excinfo: pytest.ExceptionInfo[BaseException],
    style: object = None,  # noqa: ARG001  # as pytest calls it
) -> str:
    return excinfo.exconly()


class _Summary:
    """Summary of the entries; registered in the controller only."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cases: dict[tuple[str, str], list[str]] = {}
        self._unversioned: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the cases of each entry."""
        text = getattr(report, _UNVERSIONED, None)
        if text is not None:
            self._unversioned[text] = self._unversioned.get(text, 0) + 1
        for state, text in getattr(report, _STATES, ()):
            self._cases.setdefault((state, text), []).append(report.nodeid.rpartition("::")[2])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print each entry once, with the number of its cases."""
        option = self._config.option
        whole = not (option.keyword or option.markexpr) and _collected_completely(self._config, ())[0]
        for state, text in list(self._cases):
            if state == _NOT_SEEN and (not whole or ("known", text) in self._cases):
                del self._cases[state, text]
        if not self._cases and not self._unversioned:
            return
        terminalreporter.section("known issues")
        for text, count in sorted(self._unversioned.items()):
            terminalreporter.write_line(f"NOT APPLIED {text} ({_count(count)})")
        for (state, reason), cases in sorted(self._cases.items()):
            terminalreporter.write_line(f"{state} {reason}: {_count(len(cases))}")


def _count(cases: int) -> str:
    return f"{cases} case{'s' * (cases != 1)}"
