"""Foreign suites as pytest items: one a test, in the same report as everything else.

A file ``NAME.external.toml`` names a suite, which of its tests are wanted, and what is known to fail where::

    suite = "iscsi-test-cu"
    program = "/opt/bin/iscsi-test-cu"      # where it is, if not where the shell finds it
    include = ["Inquiry.*", "Read10.*"]     # globs; all when it is left out
    exclude = ["Sanitize.*"]

    [[known]]
    on = "LIO-ORG"                          # what the target says it is, or its `implementation`
    tests = ["Verify10.Mismatch*"]
    reason = "BYTCHK is not looked at (SBC-3 5.30)"
    strict = false                          # it does not always fail; true when it is left out
    run = false                             # it does harm there: it is skipped; true when it is left out

A :class:`~storagetest.external.base.HereSuite` runs on the machine that runs pytest, on the first variant of
every target that has what it needs; its program's own list is asked for at collection. A
:class:`~storagetest.external.base.MountSuite` runs on the client, on every variant
(:mod:`storagetest.plugin.external_mount`). No target and no client is contacted at collection. A test that is
known to fail is expected to, strictly: when it passes, the entry goes.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.errors import DeadlineExceeded, WorkloadError
from storagetest.external.base import (
    ClientSuite,
    ControllerSuite,
    ItemOutcome,
    ItemResult,
    Suite,
    TargetInfo,
    suites,
)
from storagetest.hosts import LocalHost
from storagetest.plugin.run_state import KEY, RunState

__all__ = ["ExternalFile", "ExternalItem", "HereItem", "Known", "Wanted", "conclude"]

_LOOKS = pytest.StashKey[dict[str, TargetInfo]]()


@dataclass(frozen=True, slots=True)
class Known:
    """What is known to fail on one implementation, and why."""

    on: str
    tests: tuple[str, ...]
    reason: str
    strict: bool = True
    run: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a file says."""

    suite: str
    program: str = ""
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    known: tuple[Known, ...] = ()

    def has(self, test: str) -> bool:
        """Whether ``test`` is wanted."""
        return _any(test, self.include) and not _any(test, self.exclude)

    def issue(self, test: str, implementation: str) -> Known | None:
        """Return what is known of ``test`` there."""
        return next((one for one in self.known if one.on == implementation and _any(test, one.tests)), None)


class ExternalFile(pytest.File):
    """The tests of one foreign suite."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for every test and variant, or one that says why there are none."""
        wanted = _read(self.path)
        suite = suites.get(wanted.suite)()
        state = self.config.stash[KEY]
        state.wanted = True
        if state.loaded is None:
            return
        variants = [one for one in state.variants.values() if _gives(state, one, suite)]
        if isinstance(suite, ControllerSuite):
            program = wanted.program or suite.program
            if shutil.which(program) is None:
                yield self._absent(suite, f"{program} is not installed here: {suite.package}")
                return
            variants = list({one.target: one for one in reversed(variants)}.values())[::-1]
        if not variants:
            yield self._absent(suite, f"no target has {', '.join(sorted(suite.needs))}")
            return
        for test in _chosen(suite, wanted, self.path):
            for variant in variants:
                yield self._item(suite, test, variant, wanted)

    def _item(self, suite: Suite, test: str, variant: Variant, wanted: Wanted) -> pytest.Item:
        from storagetest.plugin.external_mount import MountItem  # noqa: PLC0415  # which is made of this module

        kind = MountItem if isinstance(suite, ClientSuite) else HereItem
        item: ExternalItem = kind.from_parent(
            self, name=f"{test}[{variant.id}]", suite=suite, test=test, variant=variant, wanted=wanted
        )
        return item

    def _absent(self, suite: Suite, reason: str) -> pytest.Item:
        item: _Absent = _Absent.from_parent(self, name=suite.name, reason=reason)
        return item


class _Absent(pytest.Item):
    """A foreign suite that cannot be run here: one skip."""

    def __init__(self, *, reason: str, **more: Any) -> None:  # noqa: ANN401  # pytest's
        super().__init__(**more)
        self._reason = reason

    def runtest(self) -> None:
        """Skip."""
        pytest.skip(self._reason)


class ExternalItem(pytest.Item):
    """One test of a foreign suite on one target."""

    def __init__(
        self,
        *,
        suite: Any,  # noqa: ANN401  # a HereSuite or a MountSuite
        test: str,
        variant: Variant,
        wanted: Wanted,
        **more: Any,  # noqa: ANN401  # pytest's
    ) -> None:
        super().__init__(**more)
        self.suite, self.test, self.variant, self.wanted = suite, test, variant, wanted
        self.program: str = wanted.program or suite.program
        # Locks, known breakage and the scheduling of targets find the variant where a function has it; its
        # scope is none of pytest's, so that pytest does not group these items by it.
        self.callspec = SimpleNamespace(
            params={"variant": variant.id}, indices={}, marks=[], id=variant.id, _arg2scope={"variant": None}
        )
        self.cls = None
        self.add_marker("external")

    def reportinfo(self) -> tuple[Path, None, str]:
        """Say where the item is from."""
        return self.path, None, f"{self.suite.name}: {self.name}"


class HereItem(ExternalItem):
    """A test that runs on this machine."""

    def runtest(self) -> None:
        """Run the test, and pass on what it says."""
        suite, options = self.suite, self.variant.options
        look = self._look()
        known = self.wanted.issue(self.test, look.implementation)
        if known is not None and not known.run:
            pytest.skip(f"not run on {known.on}: {known.reason}")
        run = suite.invocation(self.test, options, may_erase=look.may_erase)
        argv = (self.program, *run.argv[1:]) if self.wanted.program else run.argv
        try:
            with LocalHost() as host:
                done = host.run(argv, deadline=run.deadline, check=False, env=run.env)
        except DeadlineExceeded:
            suite.look(options)  # a dead target is said to be dead, and is left alone from here on
            raise
        self.add_report_section("call", "stdout", done.stdout)
        verdict = suite.verdict(self.test, status=done.status, stdout=done.stdout, stderr=done.stderr)
        if verdict.ended is ItemOutcome.BROKEN:
            suite.look(options)
        conclude(verdict, known, self.path.name)

    def _look(self) -> TargetInfo:
        """Look at the target once."""
        looks = self.config.stash.setdefault(_LOOKS, {})
        if self.variant.target not in looks:
            looks[self.variant.target] = self.suite.look(self.variant.options)
        return looks[self.variant.target]


def conclude(verdict: ItemResult, known: Known | None, file: str) -> None:
    """End an item as its test has ended; what is known to fail is expected to."""
    said = f"{verdict.reason}\n{verdict.details}".strip()
    match verdict.ended:
        case ItemOutcome.PASSED if known is not None and known.strict:
            pytest.fail(f"it passes: take it out of {file} ({known.reason})", pytrace=False)
        case ItemOutcome.SKIPPED:
            pytest.skip(verdict.reason)
        case ItemOutcome.FAILED if known is not None:
            pytest.xfail(f"{known.on}: {known.reason}")
        case ItemOutcome.FAILED:
            pytest.fail(said, pytrace=False)
        case ItemOutcome.BROKEN:
            raise WorkloadError(said)


def _read(path: Path) -> Wanted:
    """Read a file; :class:`pytest.UsageError` says what is wrong with it."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise pytest.UsageError(f"{path}: {error}") from None
    if not isinstance(said.get("suite"), str) or said["suite"] not in suites.all():
        raise pytest.UsageError(f"{path}: suite = NAME is wanted, one of {', '.join(sorted(suites.all()))}")
    known = [_table(path, one, _KNOWN) for one in said.pop("known", [])]
    wanted = _table(path, said, _FILE)
    return Wanted(**{**wanted, "known": tuple(Known(**one) for one in known)})


_GLOBS = "a list of globs"
_FILE = {"suite": "a name", "program": "a path", "include": _GLOBS, "exclude": _GLOBS}
_KNOWN = {"on": "a name", "tests": _GLOBS, "reason": "a sentence"}
_KNOWN |= dict.fromkeys(("strict", "run"), "true or false")
_OPTIONAL = {"program", "include", "exclude", "strict", "run"}


def _table(path: Path, said: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return one table, checked against ``fields``: name → what its value is."""
    odd = ", ".join(sorted(set(said) - set(fields)) + sorted(set(fields) - set(said) - _OPTIONAL))
    if odd:
        raise pytest.UsageError(f"{path}: {odd}: a table has {', '.join(fields)}, and this one: {said}")
    out: dict[str, Any] = {}
    for name, value in said.items():
        good = {
            _GLOBS: isinstance(value, list) and all(isinstance(one, str) for one in value),
            "true or false": isinstance(value, bool),
        }.get(fields[name], isinstance(value, str))
        if not good:
            raise pytest.UsageError(f"{path}: {name} is {fields[name]}, not {value!r}")
        out[name] = tuple(value) if isinstance(value, list) else value
    return out


def _any(test: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(test, glob) for glob in globs)


def _chosen(suite: Suite, wanted: Wanted, path: Path) -> list[str]:
    """Return the tests that the file wants; :class:`pytest.UsageError` where it names none that there is."""
    if isinstance(suite, ControllerSuite):
        listing = suite.listing()
        argv = (wanted.program, *listing.argv[1:]) if wanted.program else listing.argv
        with LocalHost() as host:
            done = host.run(argv, deadline=listing.deadline, check=False)
        tests, said = suite.tests(done.stdout), f"\n{done.describe()}"
    else:
        tests, said = suite.tests if isinstance(suite, ClientSuite) else (), ""
    chosen = [test for test in tests if wanted.has(test)]
    if not chosen:
        raise pytest.UsageError(f"{path}: {suite.name} lists no test that is wanted{said}")
    return chosen


def _gives(state: RunState, variant: Variant, suite: Suite) -> bool:
    return suite.needs <= state.protocol(variant).capabilities(variant.options)
