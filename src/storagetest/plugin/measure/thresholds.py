"""What a case is held to: its gates, the error each may make, and the baseline it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from storagetest.errors import ConfigError, ResultError
from storagetest.plugin.measure.error_budget import ErrorBudget, max_gates
from storagetest.report import baseline
from storagetest.runner import CaseInfo
from storagetest.verdict import BASELINE, ErrorPlan, Reference, Threshold, parse_threshold
from storagetest.workloads.base import Workload

if TYPE_CHECKING:
    from storagetest.config import Config, Variant

__all__ = ["ThresholdResolver"]


class ThresholdResolver:
    """One a process. A baseline that cannot be read ends the run before it starts (:class:`ConfigError`)."""

    def __init__(self, config: pytest.Config) -> None:
        named: str | None = config.option.st_baseline
        saving: str | None = config.option.st_save_baseline
        self.named = Path(named) if named else None
        self.saving = Path(saving) if saving else None
        self._workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
        self._count = ErrorBudget({})
        self._stored: Mapping[baseline.CaseKey, baseline.BaselineEntry] = {}
        try:
            self._read()
        except ResultError as error:
            raise ConfigError(str(error)) from None

    def _read(self) -> None:
        if self.saving is not None and self.saving.exists():
            if self.saving.is_file() and self.saving.suffix != ".json":
                raise ConfigError(f"--st-save-baseline {self.saving}: a directory, or a .json, is wanted")
            baseline.load(self.saving)  # find out now, not after hours of measuring
        if self.named is None:
            return
        if self.named.exists():
            self._stored = baseline.load(self.named).entries
        elif self.named != self.saving:
            raise ConfigError(
                f"--st-baseline {self.named}: there is none; make one with --st-save-baseline {self.named}"
            )

    def count(
        self,
        items: Sequence[tuple[pytest.Item, str | None]],
        config: Config,
        variants: Mapping[str, Variant],
    ) -> None:
        """Take in what was collected, items with their variants' ids; to be called before the first case."""
        counted = _Counted(config, variants)
        allotted = {item.nodeid: counted.of(item, variant) for item, variant in items}
        self._count = ErrorBudget(allotted, workers=self._workers)

    def plan(self, item: pytest.Item, gates: int, max_repeats: int) -> ErrorPlan:
        """Return the errors for the ``gates`` of one measurement of ``item``."""
        return ErrorPlan(gates=self._count.take(item.nodeid, gates), max_repeats=max_repeats)

    def gates(
        self,
        item: pytest.Item,
        config: Config,
        variant: Variant,
        load: Workload[Any],
        parameters: Mapping[str, Any],
    ) -> tuple[Threshold, ...]:
        """Return the gates of a case, those of its marks last; what both ask for is one gate.

        Those against a baseline are left out while the first one is made; where none is named at all,
        :class:`ConfigError`.
        """
        marked = [text for mark in item.iter_markers("gate") for text in mark.args]
        every = (
            *config.thresholds_for(variant, load.name, parameters),
            *(parse_threshold(text, load.metrics, place=item.nodeid) for text in marked),
        )
        gates = tuple({gate.text: gate for gate in every}.values())
        if self.named is not None:
            return gates
        against = [gate for gate in gates if gate.against == BASELINE]
        if against and self.saving is None:
            raise ConfigError(
                f"threshold {against[0].text!r}: no baseline was named: give --st-baseline PATH, or make the"
                " first one with --st-save-baseline PATH",
                place=against[0].place or None,
            )
        return tuple(gate for gate in gates if gate not in against)

    def references(
        self, case: CaseInfo, gates: Sequence[Threshold], parameters: Mapping[str, Any]
    ) -> dict[str, Reference]:
        """Return what the baseline holds of the case, for the metrics of the ``gates`` against it."""
        key = baseline.make_key(case.case, case.workload, case.variant, case.client, case.profile, parameters)
        entry, source = self._stored.get(key), str(self.named or "")
        return {
            gate.metric.name: entry.reference(gate.metric.name, source) if entry else Reference((), source)
            for gate in gates
            if gate.against == BASELINE
        }

    def repeats(self, repeats: int, max_repeats: int) -> int:
        """Return how many runs a case gets at least: what is kept as a baseline gets them all."""
        return repeats if self.saving is None else max(repeats, max_repeats)


class _Counted:
    """The most gates of an item; the same few workloads and variants are asked for again and again."""

    def __init__(self, config: Config, variants: Mapping[str, Variant]) -> None:
        self._config = config
        self._variants = variants
        self._known: dict[tuple[str, str], int] = {}

    def of(self, item: pytest.Item, variant: str | None) -> int:
        fixtures = getattr(item, "fixturenames", ())
        if "comparison" in fixtures:
            return 1
        if not {"measure", "find_maximum"} & set(fixtures) or variant is None:
            return 0
        marked = sum(len(mark.args) for mark in item.iter_markers("gate"))
        code = getattr(getattr(item, "function", None), "__code__", None)
        callspec = getattr(item, "callspec", None)
        constants = (
            *(code.co_consts if code is not None else ()),
            *(callspec.params.values() if callspec is not None else ()),
        )
        return marked + max_gates(
            constants, tuple(self._config.workloads), lambda name: self._most(variant, name)
        )

    def _most(self, variant: str, workload: str) -> int:
        key = (variant, workload)
        if key not in self._known:
            self._known[key] = self._config.most_thresholds(self._variants[variant], workload)
        return self._known[key]
