"""``storagetest report baseline``: what the gates against a baseline can find, before a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from storagetest.errors import StoragetestError
from storagetest.measure.run import Better, Metric
from storagetest.report import baseline
from storagetest.report.formats.base import ReportFormat, register
from storagetest.verdict import BASELINE, ErrorPlan, Threshold, describe_gate


@register
class BaselineFormat(ReportFormat):
    """Print which loss gates find against each case of a baseline."""

    name = "baseline"
    summary = "the loss that gates against a baseline can find"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("baseline", metavar="BASELINE", type=Path,
                            help="what --st-save-baseline wrote, or a results.jsonl")  # fmt: skip
        parser.add_argument("--margin", metavar="PERCENT", type=float, default=5.0,
                            help="what the gates allow (default: 5)")  # fmt: skip
        parser.add_argument("--gates", metavar="N", type=int, default=20,
                            help="number of gates of the suite (default: 20)")  # fmt: skip
        parser.add_argument("--metric", metavar="NAME", action="append",
                            help="only this metric; may be repeated (default: no percentiles)")  # fmt: skip

    def write(self, args: argparse.Namespace) -> None:
        """Print the list."""
        if args.gates < 1 or not 0 < args.margin < 100:
            raise StoragetestError("--gates is at least 1, and --margin lies between 0 and 100 (percent)")
        stored = baseline.load(args.baseline)
        known = {name for entry in stored.entries.values() for name in entry.metrics}
        if unknown := sorted(set(args.metric or ()) - known):
            names = ", ".join(unknown)
            raise StoragetestError(
                f"{args.baseline} has no metric {names}; it has {', '.join(sorted(known))}"
            )
        for key, entry in sorted(stored.entries.items()):
            sys.stdout.write(f"{key.workload} on {key.variant} ({key.case}, {key.profile})\n")
            runs = max((len(values) for each in entry.sessions for values in each.values.values()), default=0)
            plan = ErrorPlan(gates=args.gates, max_repeats=runs)
            for metric in _chosen(entry, args.metric):
                gate = _gate(metric, args.margin / 100)
                line = describe_gate(gate, stored.reference(key, metric.name), plan)
                sys.stdout.write(f"  {gate.text}: {line}\n")


def _chosen(entry: baseline.BaselineEntry, names: list[str] | None) -> Iterator[Metric]:
    for name, metric in entry.metrics.items():
        if name in names if names else metric.quantile is None:
            yield metric


def _gate(metric: Metric, margin: float) -> Threshold:
    higher = metric.better is Better.HIGHER
    bound, op, sign = (1 - margin, ">=", "-") if higher else (1 + margin, "<=", "+")
    text = f"{metric.name} {op} baseline {sign} {margin * 100:g} %"
    return Threshold(metric, op, bound, text, against=BASELINE)
