"""The ``find_maximum`` fixture: search the connections, block size, processes and clients of most bandwidth.

A strategy (:mod:`storagetest.search`) proposes a point. The variant is attached with its options on its
number of clients, measured once, and the strategy gets the total bandwidth. The best point in the end is
measured and judged like any case.

The variant is attached anew for each set of the protocol's options, one set at a time: for some options
(``nconnect``) the first mount of a server determines them for all later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from storagetest.config import HostConfig, Variant
from storagetest.errors import ConfigError
from storagetest.measure.run import Run
from storagetest.plugin.attach import attach_or_skip
from storagetest.plugin.measure.client_selection import attach_other_clients
from storagetest.plugin.measure.measure import MeasureFixture, record_and_raise
from storagetest.plugin.measure.running import within_case
from storagetest.plugin.outcomes import Invalid
from storagetest.plugin.run_state import RunState
from storagetest.search import (
    BayesianSearch,
    OneAtATime,
    Parameter,
    Point,
    SearchResult,
    Space,
    Stepwise,
    Strategy,
)
from storagetest.units import format_size, format_throughput
from storagetest.verdict import Verdict

StrategyChoice = Literal["surrogate", "one-at-a-time", "stepwise"] | Callable[[Space, int], Strategy]
"""A strategy by its name, or a function of the space and the number of measurements."""

CLIENTS = "clients"
EVIDENCE = "search"
"""The key of the table in a sample's evidence."""

_BANDWIDTH = "bandwidth"
_STRATEGIES: Mapping[str, type[BayesianSearch | OneAtATime | Stepwise]] = {
    "surrogate": BayesianSearch,
    "one-at-a-time": OneAtATime,
    "stepwise": Stepwise,
}


class MaximumSearch:
    """Callable: search the maximum, measure it, and check its gates. Use as a context manager."""

    def __init__(
        self, item: pytest.Item, variant: Variant, machines: Sequence[HostConfig], state: RunState
    ) -> None:
        self._item, self._variant, self._machines, self._state = item, variant, machines, state
        self._protocol = state.protocol(variant)
        self._options: set[str] = set()
        self._attached: Mapping[str, object] | None = None
        self._measure: MeasureFixture | None = None
        self._stack = ExitStack()

    def __enter__(self) -> MaximumSearch:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @within_case
    def __call__(
        self,
        workload: str,
        /,
        *,
        strategy: StrategyChoice = "surrogate",
        start: Mapping[str, object] | None = None,
        **parameters: Any,  # noqa: ANN401  # each workload has its own
    ) -> tuple[Run, SearchResult]:
        """Search, measure and judge. A parameter that is a list is searched; any other one is fixed.

        A list may also be that of an option of the protocol, or of ``clients``; it replaces the values that
        are searched otherwise. The search begins at ``start``, a value for some of the parameters.
        ``strategy`` may be a function of the space and the number of measurements.
        Raises AssertionError (a gate missed) or :class:`Invalid` (no verdict).
        """
        __tracebackhide__ = True
        run, verdicts, result = self.judged(workload, strategy=strategy, start=start, **parameters)
        record_and_raise(self._item, run, verdicts)
        return run, result

    def judged(
        self,
        workload: str,
        /,
        *,
        strategy: StrategyChoice = "surrogate",
        start: Mapping[str, object] | None = None,
        **parameters: Any,  # noqa: ANN401  # each workload has its own
    ) -> tuple[Run, tuple[Verdict, ...], SearchResult]:
        """Search, measure and judge, without record and outcome."""
        __tracebackhide__ = True
        searched = {name: tuple(value) for name, value in parameters.items() if isinstance(value, list)}
        fixed = {name: value for name, value in parameters.items() if name not in searched}
        own = self._state.workload(workload).Options.model_fields
        options = {name for name in type(self._variant.options).model_fields if name not in own}
        self._options = {*self._protocol.searched, *(options & searched.keys())}
        space = space_of(self._protocol.searched, searched, len(self._machines), options)
        budget = self._state.profile.search
        if isinstance(strategy, str):
            begin = start_point(space, start or {}, lowest=strategy == "stepwise")
            chosen: Strategy = _STRATEGIES[strategy](space, budget=budget, start=begin)
        else:
            chosen = strategy(space, budget)
        trials: list[_Trial] = []
        while (point := chosen.next_point()) is not None:
            trials.append(self._try(workload, fixed, space, point))
            chosen.record(point, trials[-1].bandwidth)
        result = chosen.result()
        run, verdicts = self._at(result.values).judged(
            workload, **self._measure_parameters(fixed, result.values)
        )
        called = strategy if isinstance(strategy, str) else type(chosen).__name__
        table = _table(space, trials, result, called)
        run = replace(
            run,
            samples=tuple(
                replace(sample, evidence={EVIDENCE: table, **sample.evidence}) for sample in run.samples
            ),
        )
        return run, verdicts, result

    def _try(self, workload: str, fixed: Mapping[str, Any], space: Space, point: Point) -> _Trial:
        values = space.values(point)
        run, _ = self._at(values).judged(workload, repeats=1, **self._measure_parameters(fixed, values))
        bandwidth = run.samples[-1].values.get(_BANDWIDTH, 0.0) if run.samples else 0.0
        if bandwidth <= 0:
            raise Invalid(f"no bandwidth was measured at {_named(values)}: {'; '.join(run.invalid)}")
        return _Trial(point, bandwidth, run.invalid)

    def _measure_parameters(self, fixed: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, Any]:
        parameters = {name: value for name, value in values.items() if name not in self._options}
        return {**fixed, CLIENTS: 1, **parameters}

    def _at(self, values: Mapping[str, object]) -> MeasureFixture:
        """Return a measure fixture whose variant is attached with the protocol's options of ``values``."""
        wanted = {name: value for name, value in values.items() if name in self._options}
        if self._measure is None or wanted != self._attached:
            self._stack.close()
            self._measure = None
            dumped = {**self._variant.options.model_dump(exclude_unset=True), **wanted}
            options = type(self._variant.options).model_validate(dumped)
            variant = replace(self._variant, options=options)
            enter, state = self._stack.enter_context, self._state
            first = enter(attach_or_skip(variant, state.host(self._machines[0]), state))
            every = enter(attach_other_clients(variant, self._machines, first, state))
            mismatches = [str(one) for attachment in every for one in attachment.mismatches]
            if mismatches:
                raise Invalid(
                    f"{variant.id} is not attached with the options of the search: {'; '.join(mismatches)}. "
                    "If another case has it attached, run only this case"
                )
            self._measure = MeasureFixture(self._item, variant, every, self._state)
            self._attached = wanted
        return self._measure


@dataclass(frozen=True, slots=True)
class _Trial:
    """One measurement; ``doubts`` are the reasons why it alone allows no verdict."""

    point: Point
    bandwidth: float
    doubts: tuple[str, ...]


def space_of(
    options: Mapping[str, tuple[object, ...]],
    searched: Mapping[str, tuple[object, ...]],
    clients: int,
    protocol_only: Collection[str] = (),
) -> Space:
    """Return the search space: the protocol's options, the workload's, and powers of two of clients.

    ``searched`` may have values of its own for ``clients`` and for the options ``protocol_only``.
    """
    if both := set(options) & set(searched) - set(protocol_only):
        raise ConfigError(f"{', '.join(sorted(both))}: an option of both the protocol and the workload")
    counts: tuple[object, ...] = tuple(
        dict.fromkeys((*(2**at for at in range(clients.bit_length())), clients))
    )
    if CLIENTS in searched:
        known = range(1, clients + 1)
        counts = searched[CLIENTS]
        if too_many := [count for count in counts if count not in known]:
            raise ConfigError(f"find_maximum: clients: {too_many[0]} of {clients} clients")
    several = clients > 1 or CLIENTS in searched
    every = {**options, **searched, **({CLIENTS: counts} if several else {})}
    try:
        return Space(tuple(Parameter(name, values) for name, values in every.items()))
    except ValueError as error:
        raise ConfigError(f"find_maximum has nothing to search: {error}") from None


def start_point(space: Space, given: Mapping[str, object], *, lowest: bool) -> Point | None:
    """Return the point of the values ``given``; others are at their lowest, or in the middle.

    Raises :class:`ConfigError` for a parameter or a value that is not searched.
    """
    point = [0] * len(space.shape) if lowest else list(space.middle())
    names = [parameter.name for parameter in space.parameters]
    for name, value in given.items():
        if name not in names or value not in space.parameters[names.index(name)].values:
            raise ConfigError(f"find_maximum: start: {name}={_shown(value)} is not among the searched values")
        number = names.index(name)
        point[number] = space.parameters[number].values.index(value)
    return tuple(point) if given else None


def _named(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in values.items())


def _shown(value: object) -> str:
    large = isinstance(value, int) and value >= 4096
    return format_size(int(str(value))) if large else str(value)


def _table(space: Space, trials: Sequence[_Trial], result: SearchResult, strategy: str) -> str:
    """Return the result, followed by a table of all measurements in order."""
    limits = ", ".join(result.limits) if result.limits else "none of them"
    head = (
        f"best: {_named(result.values)}; about {format_throughput(result.value)} by {result.measurements} "
        f"measurements of {len(space)} combinations ({strategy})\n"
        f"at the limit of their range: {limits}\n"
    )
    rows = [[*(one.name for one in space.parameters), _BANDWIDTH, ""]]
    for one in trials:
        values = [_shown(value) for value in space.values(one.point).values()]
        best = "best" if one.point == result.point else ""
        doubt = "no verdict by itself: " + one.doubts[0] if one.doubts else ""
        rows.append([*values, format_throughput(one.bandwidth), "; ".join(filter(None, (best, doubt)))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return head + "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
