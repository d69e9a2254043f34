"""Results as OpenMetrics text, so that Prometheus stores them and Grafana draws trends.

Source: OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/). Rules:

1. A metric is a gauge named ``storagetest_<metric>_<unit>``; the unit is a base unit and the name's suffix:
   ``bytes_per_second``, ``per_second``, ``seconds``, ``ratio``; a count has none. IOPS are a rate of I/Os, so
   ``iops`` becomes ``ios_per_second``.
2. The ends of its interval are separate gauges, ``storagetest_<metric>_interval_low_<unit>`` and
   ``…_high_…``: neither may be summed or averaged with the value.
3. Labels identify the measurement: target, variant, protocol, client, workload, case, profile, and the
   workload's parameters as ``param_<name>``. Nothing that changes from run to run is a label.
4. The outcome of a case is a state set, ``storagetest_status``; each gate's outcome one,
   ``storagetest_verdict`` with the gate's text. Versions and negotiated options are ``storagetest_run_info``.
5. A percentile of fewer I/Os than it needs has no sample, as in every report.
6. Without ``timestamps`` only the last record of a case is written, for node_exporter's textfile
   collector and the Pushgateway, which refuse timestamps. With them every record has a sample at the
   second it began, for ``promtool tsdb create-blocks-from openmetrics``.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storagetest.errors import ResultError
from storagetest.measure.run import Run
from storagetest.measure.unit import Unit
from storagetest.report.base import Record, Status
from storagetest.report.baseline import key_of
from storagetest.report.formats.base import ResultsFormat, register
from storagetest.report.metric_values import MetricValue, metric_values, parameter_text
from storagetest.verdict.base import Outcome

_UNITS: Mapping[Unit, str] = {
    Unit.BYTES: "bytes",
    Unit.BYTES_PER_SECOND: "bytes_per_second",
    Unit.PER_SECOND: "per_second",
    Unit.SECONDS: "seconds",
    Unit.RATIO: "ratio",
    Unit.COUNT: "",
}
Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Family:
    """A metric family: samples by labels, then by time, so that none is duplicated.

    In a state set the state is a label as well, but all states of one time belong together: that is ``more``.
    """

    kind: str
    unit: str
    text: str
    suffix: str = ""
    samples: dict[Labels, dict[float | None, dict[Labels, str]]] = field(default_factory=dict)

    def add(self, labels: Labels, value: str, at: float | None, *, more: Labels = ()) -> None:
        self.samples.setdefault(labels, {}).setdefault(at, {})[more] = value


@register
class OpenMetricsFormat(ResultsFormat):
    """Write results as OpenMetrics text. Without --timestamps: the last record of each case, for
    node_exporter's textfile collector or a Pushgateway. With it: every record, for promtool tsdb
    create-blocks-from openmetrics.
    """

    name = "openmetrics"
    summary = "OpenMetrics text, for Prometheus and Grafana"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        super().add_arguments(parser)
        parser.add_argument("--timestamps", action="store_true", help="every record, at the second it began")

    def render(self, records: Sequence[Record], args: argparse.Namespace) -> str:
        """Return the text."""
        return openmetrics(records, timestamps=args.timestamps)


def openmetrics(records: Sequence[Record], *, timestamps: bool = False) -> str:
    """Return the text, ending in ``# EOF``. Raises :class:`ResultError` where two metrics share a name."""
    latest = {(key_of(record.run), record.run.target): record for record in records}
    chosen = records if timestamps else list(latest.values())
    families: dict[str, _Family] = {}
    for record in chosen:
        at = record.run.started if timestamps else None
        if at is None or math.isfinite(at):
            _add(families, record, at)
    lines: list[str] = []
    for name in sorted(families):
        lines += _lines(name, families[name])
    return "".join(f"{line}\n" for line in [*lines, "# EOF"])


def _add(families: dict[str, _Family], record: Record, at: float | None) -> None:
    run = record.run
    labels = _labels(run)
    for metric, value in metric_values(record).items():
        if value.enough:
            _add_value(families, metric, value, labels, at)
    for status in Status:
        state = (("storagetest_status", status.value),)
        _put(families, "status", "stateset", "How the case ended.").add(
            labels, str(int(status is record.status)), at, more=state
        )
    for verdict in record.verdicts:
        for outcome in Outcome:
            gate = (*labels, ("gate", verdict.threshold.text))
            _put(families, "verdict", "stateset", "What became of a gate.").add(
                gate, str(int(verdict.outcome is outcome)), at, more=(("storagetest_verdict", outcome.value),)
            )
    _put(families, "repeats", "gauge", "How many runs the case's figures are from.").add(
        labels, str(len(run.samples)), at
    )
    if math.isfinite(run.started):
        _put(families, "started_timestamp_seconds", "gauge", "When the case began.", "seconds").add(
            labels, repr(float(run.started)), at
        )
    texts = {f"version_{name}": text for name, text in run.versions.items()}
    texts |= {f"negotiated_{name}": text for name, text in run.negotiated.items()}
    info = tuple((_sane(name), text) for name, text in texts.items())
    family = _put(families, "run", "info", "Versions and negotiated options.")
    family.suffix = "_info"
    family.add((*labels, *info), "1", at)


def _add_value(
    families: dict[str, _Family], metric: str, measured: MetricValue, labels: Labels, at: float | None
) -> None:
    unit = _UNITS[measured.metric.unit]
    words = re.sub(r"(?<![a-z])iops(?![a-z])", "ios", metric) if unit == "per_second" else metric
    stem = _sane(words)
    values = [("", measured.value, f"{metric}, {measured.metric.better.value} is better.")]
    interval = measured.interval
    if interval is not None and math.isfinite(interval.low) and math.isfinite(interval.high):
        values.append(("_interval_low", interval.low, f"{metric}: where its confidence interval begins."))
        values.append(("_interval_high", interval.high, f"{metric}: where its confidence interval ends."))
    for part, value, text in values:
        family = _put(families, "_".join(filter(None, (f"{stem}{part}", unit))), "gauge", text, unit)
        if family.text != text:
            raise ResultError(f"the metrics {metric!r} and {family.text!r} would share the name {stem}")
        family.add(labels, _number(value), at)


def _put(families: dict[str, _Family], name: str, kind: str, text: str, unit: str = "") -> _Family:
    return families.setdefault(f"storagetest_{name}", _Family(kind, unit, text))


def _labels(run: Run) -> Labels:
    names = ("target", "variant", "protocol", "client", "workload", "case", "profile")
    named = {name: getattr(run, name) for name in names}
    named |= {f"param_{_sane(name)}": parameter_text(name, value) for name, value in run.parameters.items()}
    return tuple(sorted(named.items()))


def _sane(name: str) -> str:
    """Return the name with ``_`` for each character that is not allowed in the name of a metric or label."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(float(value)) if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")


def _lines(name: str, family: _Family) -> Sequence[str]:
    lines = [f"# TYPE {name} {family.kind}"]
    if family.unit:
        lines.append(f"# UNIT {name} {family.unit}")
    lines.append(f"# HELP {name} {_escaped(family.text)}")
    for labels, times in family.samples.items():
        for at, states in sorted(times.items(), key=lambda point: point[0] or 0.0):
            for more, value in states.items():
                shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in (*labels, *more))
                moment = "" if at is None else f" {at!r}"
                lines.append(f"{name}{family.suffix}{{{shown}}} {value}{moment}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
