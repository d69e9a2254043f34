"""Resolve the gates of a case, their error probability, and the baseline that they compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from storagetest.errors import ConfigError, ResultError
from storagetest.plugin.items import fixtures_of, parameters_of
from storagetest.plugin.measure.error_budget import ErrorBudget, max_gates
from storagetest.report import baseline
from storagetest.runner import CaseInfo
from storagetest.verdict import BASELINE, ErrorPlan, Outcome, Reference, Threshold, Verdict, parse_threshold
from storagetest.workloads.base import Workload

if TYPE_CHECKING:
    from storagetest.config import Config, Variant


class ThresholdResolver:
    """One for each process. Raises :class:`ConfigError` if the baseline cannot be read."""

    def __init__(self, config: pytest.Config) -> None:
        given: str | None = config.option.st_baseline
        saving: str | None = config.option.st_save_baseline
        self.baseline_path = Path(given) if given else None
        self.saving = Path(saving) if saving else None
        self._workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
        self._budget = ErrorBudget({})
        self._stored = baseline.BaselineFile({})
        self._strict: bool = config.option.st_strict
        try:
            self._read()
        except ResultError as error:
            raise ConfigError(str(error)) from None

    def _read(self) -> None:
        if self.saving is not None and self.saving.exists():
            if not self.saving.is_dir() and not (self.saving.is_file() and self.saving.suffix == ".json"):
                raise ConfigError(f"--st-save-baseline {self.saving}: not a directory or a .json file")
            baseline.load(self.saving)  # report an unreadable file before measuring
        if self.baseline_path is None:
            return
        if self.baseline_path.exists():
            if not self.baseline_path.is_file() and not self.baseline_path.is_dir():
                raise ConfigError(f"--st-baseline {self.baseline_path}: neither a file nor a directory")
            self._stored = baseline.load(self.baseline_path)
        elif self.baseline_path != self.saving:
            raise ConfigError(
                f"--st-baseline {self.baseline_path}: no such baseline. "
                f"Create it with --st-save-baseline {self.baseline_path}"
            )

    def count(
        self,
        items: Sequence[tuple[pytest.Item, str | None]],
        config: Config,
        variants: Mapping[str, Variant],
    ) -> None:
        """Count the gates of the collected items (with their variants' ids), before the first case."""

        @cache
        def most(variant: str, workload: str) -> int:
            return config.most_thresholds(variants[variant], workload)

        allotted = {
            item.nodeid: _most_gates(item, variant, config.workloads, most) for item, variant in items
        }
        self._budget = ErrorBudget(allotted, workers=self._workers)

    def plan(self, item: pytest.Item, gates: int, max_repeats: int) -> ErrorPlan:
        """Return the errors for the ``gates`` of one measurement of ``item``."""
        return ErrorPlan(gates=self._budget.take(item.nodeid, gates), max_repeats=max_repeats)

    def gates(
        self,
        item: pytest.Item,
        config: Config,
        variant: Variant,
        load: Workload[Any],
        parameters: Mapping[str, Any],
    ) -> tuple[Threshold, ...]:
        """Return the gates of a case, those of its marks last, without duplicates.

        While a first baseline is saved, gates against a baseline are left out. Raises :class:`ConfigError` if
        there is such a gate and neither option names a baseline.
        """
        marked = [text for mark in item.iter_markers("gate") for text in mark.args]
        every = (
            *config.thresholds_for(variant, load.name, parameters),
            *(parse_threshold(text, load.metrics, place=item.nodeid) for text in marked),
        )
        gates = tuple({gate.text: gate for gate in every}.values())
        if self.baseline_path is not None:
            return gates
        against = [gate for gate in gates if gate.against == BASELINE]
        if against and self.saving is None:
            raise ConfigError(
                f"threshold {against[0].text!r}: no baseline is given. Add --st-baseline PATH, or create the"
                " first one with --st-save-baseline PATH",
                place=against[0].place or None,
            )
        return tuple(gate for gate in gates if gate not in against)

    def references(
        self, case: CaseInfo, gates: Sequence[Threshold], parameters: Mapping[str, Any]
    ) -> dict[str, Reference]:
        """Return the case's baseline values by metric, for the ``gates`` against a baseline."""
        key = baseline.make_key(case.case, case.workload, case.variant, case.client, case.profile, parameters)
        source = str(self.baseline_path or "")
        return {
            gate.metric.name: self._stored.reference(key, gate.metric.name, source)
            for gate in gates
            if gate.against == BASELINE
        }

    def final(self, verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
        """Return the verdicts; with ``--st-strict``, LEARNING is INVALID."""
        return tuple(
            replace(verdict, outcome=Outcome.INVALID)
            if self._strict and verdict.outcome is Outcome.LEARNING
            else verdict
            for verdict in verdicts
        )

    def repeats(self, repeats: int, max_repeats: int) -> int:
        """Return the least number of repeats; a run that is saved as a baseline gets ``max_repeats``."""
        return repeats if self.saving is None else max(repeats, max_repeats)


def _most_gates(
    item: pytest.Item, variant: str | None, workloads: Iterable[str], most: Callable[[str, str], int]
) -> int:
    """Return the largest number of gates of ``item``; ``most`` is that of a workload on a variant."""
    fixtures = fixtures_of(item)
    if "comparison" in fixtures:
        return 1
    if not {"measure", "find_maximum"} & set(fixtures) or variant is None:
        return 0
    marked = sum(len(mark.args) for mark in item.iter_markers("gate"))
    code = getattr(getattr(item, "function", None), "__code__", None)
    constants = (*(code.co_consts if code is not None else ()), *parameters_of(item).values())
    return marked + max_gates(constants, workloads, partial(most, variant))
