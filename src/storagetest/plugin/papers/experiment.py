"""The ``experiment`` fixture: measure the points of a published experiment, and judge its claims.

A *point* is one load; it is measured on every *side* (a target in a role) that it names. Sides that can be
attached at the same time form a group. Within a group each round measures every point on every side once, in
one order and then in the reverse, so that slow drift affects both sides of a claim alike. Further rounds
follow while a claim is undecided. Groups are measured one after the other; the page names the claims across
groups.

A claim that differs fails no case: hardware differs, and that is what the page shows. What fails is a
measurement; a run that supports no verdict makes the case INVALID.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest

from storagetest.errors import ClientLacks, ConfigError, ResultError, StoragetestError, WorkloadError
from storagetest.installed_suites import case_name
from storagetest.measure.run import Run
from storagetest.plugin.attach import attach_or_skip
from storagetest.plugin.measure.client_selection import attach_other_clients
from storagetest.plugin.measure.find_maximum import MaximumSearch
from storagetest.plugin.measure.measure import make_measurement, workload_options
from storagetest.plugin.measure.running import within_case
from storagetest.plugin.outcomes import Invalid
from storagetest.plugin.output.record_transport import records_of
from storagetest.plugin.papers.sides import Side, groups, resolve
from storagetest.plugin.run_state import RunState
from storagetest.protocols.base import Attachment
from storagetest.report.allure import reporter as allure
from storagetest.report.base import Record
from storagetest.report.papers import published
from storagetest.report.papers.page import document
from storagetest.report.papers.published import Claim, Value
from storagetest.report.papers.rerun import Conditions, with_claims, with_conditions, with_point
from storagetest.runner import Measurement
from storagetest.runner.locks import acquire, machine_id
from storagetest.search import OneAtATime, Space
from storagetest.verdict import ErrorPlan, Verdict, wants_more
from storagetest.verdict.claims import ClaimResult, Operand, claim_result, claim_verdicts, unmeasured

_T = TypeVar("_T")
_PAPER = "paper"
"""The profile at whose scale experiments run as published; others run them at the lab's scale."""

_NO_SCALE = ("smoke", "standard", "thorough")
"""Profiles of the other suites. A run of all suites with them skips the experiments, which take hours."""

Key = tuple[str, str]
"""Side and point."""


@dataclass(frozen=True, slots=True)
class _Point:
    name: str
    workload: str
    parameters: Mapping[str, Any]
    sides: tuple[str, ...]
    clients: int = 1
    scale: Mapping[str, Any] = field(default_factory=dict)
    search: bool = False


class ExperimentRunner:
    """Callable: collect sides and points by methods, then measure and judge them by a call."""

    def __init__(self, item: pytest.Item, name: str, state: RunState, *, lock_timeout: float) -> None:
        self._item, self._state, self._lock_timeout = item, state, lock_timeout
        self.published = published.experiment(name)
        self._sides: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._points: list[_Point] = []
        self._runs: dict[Key, Run] = {}
        self._reasons: dict[Key, str] = {}
        self._failed: dict[Key, str] = {}
        self._resolved: dict[str, Side] = {}

    @property
    def is_paper(self) -> bool:
        """Whether the sizes are those of the publication."""
        return self._state.profile.name == _PAPER

    def pick(self, *, lab: _T, paper: _T) -> _T:
        """Return the value of the run's scale."""
        return paper if self.is_paper else lab

    def clients(self, role: str) -> int:
        """Return the number of clients of the role's variant; 1 without one."""
        variant = self._state.config.roles.get(role)
        return 1 if variant is None else len(variant.clients)

    def side(self, name: str, role: str = "", **options: object) -> None:
        """Add the side ``name``: the target with ``role`` (default: the same name), with these options."""
        if name not in self.published.sides:
            raise ConfigError(f"{self.published.id}: the published data have no side {name!r}")
        self._sides[name] = (role or name, options)

    def point(
        self,
        name: str,
        workload: str,
        *,
        sides: Sequence[str] = (),
        clients: int = 1,
        scale: Mapping[str, Any] | None = None,
        **parameters: object,
    ) -> None:
        """Add the load ``name``, on ``sides`` (default: all). ``scale`` replaces fields of the profile."""
        chosen = tuple(sides) or tuple(self._sides)
        self._points.append(_Point(name, workload, parameters, chosen, clients, scale or {}))

    def search(self, name: str, workload: str, *, sides: Sequence[str], **parameters: object) -> None:
        """Add a stepwise search for the most bandwidth, one parameter at a time; lists are searched."""
        self._points.append(_Point(name, workload, parameters, tuple(sides), search=True))

    @within_case
    def __call__(self) -> Mapping[str, ClaimResult]:
        """Measure, judge and record. Skips if no side can be measured; raises :class:`Invalid`."""
        __tracebackhide__ = True
        if self._state.profile.name in _NO_SCALE:
            pytest.skip("published experiments take --st-profile lab or --st-profile paper")
        self._resolve()
        present = [side for side in self._resolved.values() if side.variant is not None]
        if not present:
            reasons = dict.fromkeys(side.reason for side in self._resolved.values())
            pytest.skip(f"{self.published.id}: {'; '.join(reasons)}")
        before = len(records_of(self._item))
        began, load = time.monotonic(), os.getloadavg()[0]
        with self._locked(present):
            for group in groups(present):
                self._measure_group(group)
            self._search(present)
        if not self._runs and self._failed:
            raise Invalid("\n".join(self._failed.values()))
        if not self._runs:
            pytest.skip(f"{self.published.id}: {'; '.join(dict.fromkeys(self._reasons.values()))}")
        results = {claim.id: self._result(claim) for claim in self.published.claims if self._judges(claim)}
        seconds, processors = time.monotonic() - began, os.cpu_count() or 1
        self._record(results, before, Conditions(seconds, load, os.getloadavg()[0], processors))
        unusable = (why for run in self._runs.values() for why in run.invalid)
        invalid = dict.fromkeys((*self._failed.values(), *unusable))
        if invalid:
            raise Invalid("\n".join(invalid))
        return results

    def _resolve(self) -> None:
        for name, (role, options) in self._sides.items():
            clients = max((point.clients for point in self._points if name in point.sides), default=1)
            if any(point.search and name in point.sides for point in self._points):
                clients = max(clients, self.clients(role))
            self._resolved[name] = resolve(name, role, options, clients, self._state)

    @contextmanager
    def _locked(self, sides: Sequence[Side]) -> Iterator[None]:
        names = set()
        for side in sides:
            assert side.variant is not None
            names |= {f"client:{machine_id(machine)}" for machine in side.machines}
            server = side.variant.server
            address = self._state.protocol(side.variant).server(side.variant.options)
            names.add(f"server:{machine_id(server) if server is not None else address}")
        with acquire(exclusive=names, timeout=self._lock_timeout, purpose=self._item.nodeid):
            yield

    def _measure_group(self, group: Sequence[Side]) -> None:
        with ExitStack() as stack:
            attached = {side.name: self._attach(side, stack) for side in group}
            benches = self._benches({name: every for name, every in attached.items() if every}, stack)
            self._run_rounds(benches)

    def _attach(self, side: Side, stack: ExitStack) -> tuple[Attachment, ...]:
        """Return the side's attachments, one for each client; none if it cannot be attached."""
        assert side.variant is not None
        state = self._state
        try:
            first = stack.enter_context(attach_or_skip(side.variant, state.host(side.machines[0]), state))
            others = attach_other_clients(side.variant, side.machines, first, state)
            every = stack.enter_context(others)
        except pytest.skip.Exception as skipped:
            self._lacks(side.name, str(skipped))
            return ()
        changed = [str(one) for attachment in every for one in attachment.mismatches]
        if changed:
            self._lacks(side.name, f"{side.variant.id}: silently changed: {'; '.join(changed)}")
            return ()
        return every

    def _lacks(self, side: str, reason: str) -> None:
        for point in self._points:
            if side in point.sides:
                self._reasons[side, point.name] = reason

    def _benches(
        self, attached: Mapping[str, tuple[Attachment, ...]], stack: ExitStack
    ) -> dict[Key, Measurement]:
        """Return the measurements of the attached sides, prepared."""
        benches: dict[Key, Measurement] = {}
        for point in self._points:
            for name in point.sides if not point.search else ():
                if name not in attached:
                    continue
                bench = self._bench(point, name, attached[name])
                if bench is None:
                    continue
                stack.enter_context(bench)
                try:
                    bench.prepare()
                    bench.reach_steady_state(keep=False)
                except (ClientLacks, WorkloadError) as error:
                    self._leave_out((name, point.name), error)
                    continue
                benches[name, point.name] = bench
        return benches

    def _bench(self, point: _Point, side: str, attached: Sequence[Attachment]) -> Measurement | None:
        variant = self._resolved[side].variant
        assert variant is not None
        state = self._state
        load = state.workload(point.workload)()
        options = workload_options(load, point.parameters)
        if lacking := state.lacking(variant, load.capabilities(options)):
            self._reasons[side, point.name] = lacking
            return None
        profile = replace(state.profile, **point.scale)
        machines = attached[: point.clients]
        return make_measurement(self._item, load, options, variant, machines, state, profile=profile)

    def _run_rounds(self, benches: Mapping[Key, Measurement]) -> None:
        profile = self._state.profile
        active, rounds = dict(benches), 0
        while active:
            order = list(active)
            for key in order if rounds % 2 == 0 else reversed(order):
                self._measure(key, active[key], max(profile.repeats, rounds + 1))
            rounds += 1
            self._take_runs(benches)
            if rounds >= profile.repeats:
                wanted = self._undecided(set(benches))
                active = {key: bench for key, bench in active.items() if key in wanted}
        for bench in benches.values():
            bench.finish()
        self._take_runs(benches)

    def _take_runs(self, benches: Mapping[Key, Measurement]) -> None:
        for key, bench in benches.items():
            if bench.repeats:
                self._runs[key] = self._named(key, bench.run)

    def _measure(self, key: Key, bench: Measurement, of: int) -> None:
        if bench.not_steady or key in self._reasons:
            return
        try:
            bench.measure(of)
        except (ClientLacks, WorkloadError) as error:
            self._leave_out(key, error)

    def _leave_out(self, key: Key, error: StoragetestError) -> None:
        """Measure this point no more. What failed makes the case INVALID after the others are measured."""
        self._reasons[key] = str(error).partition("\n")[0]
        if not isinstance(error, ClientLacks):
            self._failed[key] = f"{' '.join(key)}: {self._reasons[key]}"

    def _named(self, key: Key, run: Run) -> Run:
        side, point = key
        case = f"{case_name(self._item.nodeid, self._item.path)}[{side} {point}]"
        return with_point(replace(run, case=case), self.published.id, side, point)

    def _undecided(self, measured: set[Key]) -> set[Key]:
        """Return the points of claims within ``measured`` that further rounds may decide."""
        wanted = set()
        for claim in self.published.claims:
            keys = _keys(claim)
            if set(keys) & set(self._reasons):  # it is measured no more, so rounds would never end
                continue
            if not keys or not set(keys) <= measured & set(self._runs) or self._not_measured(claim):
                continue
            left, right = (self._runs[key] for key in keys)
            verdicts = self._verdicts(claim)
            if not right.invalid and wants_more(left, verdicts, max_repeats=self._state.profile.max_repeats):
                wanted |= set(keys)
        return wanted

    def _verdicts(self, claim: Claim) -> tuple[Verdict, ...]:
        assert claim.left is not None
        assert claim.right is not None
        gates = sum(len(each.gates) for each in self.published.claims if each.left is not None)
        plan = ErrorPlan(gates=max(1, gates), max_repeats=self._state.profile.max_repeats)
        left, right = (
            _operand(
                self._runs[value.side, value.point], value, same_point=claim.left.point == claim.right.point
            )
            for value in (claim.left, claim.right)
        )
        return claim_verdicts(left, right, claim.gates, plan=plan)

    def _judges(self, claim: Claim) -> bool:
        """Whether the claim is this case's: other cases of the experiment have sides that it has not."""
        return {side for side, _ in _keys(claim)} <= set(self._sides)

    def _result(self, claim: Claim) -> ClaimResult:
        if claim.left is None or claim.right is None:
            return unmeasured(claim.because)
        for value in (claim.left, claim.right):
            if (value.side, value.point) not in self._runs:
                return unmeasured(self._why_not(value))
        if reason := self._not_measured(claim):
            return unmeasured(reason)
        return claim_result(self._verdicts(claim))

    def _not_measured(self, claim: Claim) -> str:
        """Return which metric of the claim's runs has no value, such as writes of an unknown server."""
        for value in (claim.left, claim.right):
            run = None if value is None else self._runs[value.side, value.point]
            if value is None or run is None or run.invalid or value.metric not in run.metrics:
                continue  # judged, and reported, with its own reason
            if not run.values(run.metrics[value.metric]):
                return f"{run.variant}: {value.metric} was not measured"
        return ""

    def _why_not(self, value: Value) -> str:
        side = self._resolved.get(value.side)
        if side is not None and side.reason:
            return side.reason
        reason = self._reasons.get((value.side, value.point))
        scale = f"the scale of profile {self._state.profile.name} leaves out {value.point!r}"
        return reason or scale

    def _search(self, sides: Sequence[Side]) -> None:
        """Run the searches, each with the variant attached by itself."""
        for point in self._points:
            for side in sides if point.search else ():
                if side.name not in point.sides or side.variant is None:
                    continue
                if not self._state.profile.search:
                    self._reasons[side.name, point.name] = (
                        f"profile {self._state.profile.name} allows no measurements for a search"
                    )
                    continue
                key = (side.name, point.name)
                with MaximumSearch(self._item, side.variant, side.machines, self._state) as search:
                    run, _, _ = search.judged(point.workload, strategy=_stepwise, **point.parameters)
                self._runs[key] = self._named(key, run)

    def _record(self, results: Mapping[str, ClaimResult], before: int, conditions: Conditions) -> None:
        records = records_of(self._item)
        first, *others = self._runs.values()
        for run in (with_conditions(with_claims(first, results), conditions), *others):
            records.append(Record(run=run, nodeid=self._item.nodeid))
        title = f"{self.published.id}: {self.published.title}"
        allure.identify(epic="Published experiments", feature=title, variant="")
        page = document(records[before:], title=title)
        allure.attach_page("published and measured", page)


def _operand(run: Run, value: Value, *, same_point: bool) -> Operand:
    """Return a side of a claim; the sides of different points are called after these, too."""
    return Operand(run, value.metric, "" if same_point else f"{run.variant} ({value.point})")


def _stepwise(space: Space, budget: int) -> OneAtATime:
    """Return the published strategy, with up to three measurements of each value as the budget allows."""
    return OneAtATime(space, budget=budget, repeats=min(3, max(1, budget // sum(space.shape))))


def _keys(claim: Claim) -> list[Key]:
    values = [value for value in (claim.left, claim.right) if value is not None]
    return [(value.side, value.point) for value in values]


def start(item: pytest.Item, name: str, state: RunState) -> ExperimentRunner:
    """Return the runner of the experiment in ``suites/papers/NAME.toml``. Raises :class:`ConfigError`."""
    try:
        return ExperimentRunner(item, name, state, lock_timeout=item.config.option.st_lock_timeout)
    except ResultError as error:
        raise ConfigError(str(error)) from None
