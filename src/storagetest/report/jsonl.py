"""results.jsonl: one run per line, for programs and for later comparison.

Rules:

1. ``schema`` leads every object. Within a version, members are only added. A reader also accepts the version
   before its own and refuses any other by name. The JSON Schema is ``docs/reference/result.schema.json``.
2. :func:`to_json` and :func:`from_json` are exact inverses, for parameters made of JSON values (a tuple
   becomes a list, and anything else its text). Values are in base units, floats in full precision; a number
   that is not finite is the text ``"nan"``, ``"inf"`` or ``"-inf"``, because JSON has no number for it.
   ``status`` is written for other programs and is not read.
3. A line is written by one ``write`` to a file opened for appending, under a lock, by the controlling process
   only. If a crash left an incomplete last line, the next run starts a new line.
4. :func:`read` names the file and line of an error. A line that starts with ``schema`` and has no closing
   brace is the result of a crash: it is reported through ``on_torn`` and left out. Any other damage is an
   error.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from storagetest.errors import ResultError
from storagetest.measure.bottleneck import Bottleneck, Limiter, Utilisation
from storagetest.measure.common_window import ClientSummary, ConcurrencySummary
from storagetest.measure.histogram import Histogram
from storagetest.measure.run import HEADLINE, METRICS, Better, Metric, Run, Sample
from storagetest.measure.series import Series
from storagetest.measure.stats import Interval
from storagetest.measure.unit import Unit
from storagetest.report.base import Record, Status
from storagetest.verdict.base import Outcome, Threshold, Verdict

SCHEMA = "storagetest.result/3"

_PREVIOUS_SCHEMAS = ("storagetest.result/1", "storagetest.result/2")
_COMPLETION = {
    name: f"completion_{name.removeprefix('latency_')}"
    for name, metric in METRICS.items()
    if metric.unit is Unit.SECONDS
}
"""Up to version 2 these metrics of fio's loads were completion latencies; they are read as what they are."""

_RENAMED_MEMBERS = {"headroom": "utilisation", "together": "concurrency"}
"""Members of a sample in version 1, with their names in version 2."""

_RUN_TEXTS = ("case", "workload", "target", "variant", "protocol", "client", "title", "profile")
"""Members of a run that are text."""

Object = dict[str, Any]

_STARTS = tuple(f'{{"schema":"{version}"'.encode() for version in (SCHEMA, *_PREVIOUS_SCHEMAS))


def to_json(record: Record) -> Object:
    """Return the record as JSON values only (dict, list, str, int, float, bool, None)."""
    return {
        "schema": SCHEMA,
        "nodeid": record.nodeid,
        "status": record.status.value,
        "ended": record.ended.value if record.ended else None,
        "failure": record.failure,
        "run": _run_to_json(record.run),
        "verdicts": [_verdict_to_json(verdict) for verdict in record.verdicts],
        "artefacts": dict(record.artefacts),
    }


def from_json(document: Mapping[str, Any]) -> Record:
    """Return the record that :func:`to_json` was given. Raises :class:`ResultError`."""
    schema = document.get("schema")
    if schema != SCHEMA and schema not in _PREVIOUS_SCHEMAS:
        older = " and ".join(map(repr, _PREVIOUS_SCHEMAS))
        raise ResultError(f"schema is {schema!r}; this version reads {SCHEMA!r}, and {older}")
    try:
        run = _run_from_json(document["run"])
        return Record(
            run=run if schema == SCHEMA else _with_completion_latencies(run),
            verdicts=tuple(_verdict_from_json(each) for each in document["verdicts"]),
            ended=Status(document["ended"]) if document["ended"] is not None else None,
            failure=document["failure"],
            artefacts=dict(document["artefacts"]),
            nodeid=document["nodeid"],
        )
    except KeyError as error:
        raise ResultError(f"member {error} is missing") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise ResultError(f"not a result: {error}") from None


def read(path: Path, *, on_torn: Callable[[str], None] | None = None) -> list[Record]:
    """Return the records of a results file, in its order.

    ``on_torn`` is called for each torn line; without it, it is an error. Raises :class:`ResultError` that
    starts with ``file:line``.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}") from None
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(_parse(line))
        except ResultError as error:
            message = f"{path}:{number}: {error}"
            if on_torn is None or not _is_torn(line):
                raise ResultError(message) from None
            on_torn(f"{message}; the line was cut off (a crash while writing?) and is left out")
    return records


class JsonlReporter:
    """Appends every record to ``path``; directories on the way are made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_record(self, record: Record) -> None:
        """Append one complete line. Raises :class:`ResultError` if it cannot be written."""
        line = json.dumps(to_json(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ResultError(f"{self.path}: {error.strerror}; name another file with --st-results") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # locked for one write
            self._append(descriptor, line.encode() + b"\n")
        finally:
            os.close(descriptor)

    def _append(self, descriptor: int, line: bytes) -> None:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        written = os.write(descriptor, line)
        if written != len(line):
            os.ftruncate(descriptor, size)
            raise ResultError(
                f"{self.path}: only {written} of {len(line)} bytes could be written (disk full?); taken back"
            )


def _parse(line: bytes) -> Record:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise ResultError(f"damaged: {error}") from None
    if not isinstance(document, dict):
        raise ResultError("not a JSON object")
    return from_json(document)


def _is_torn(line: bytes) -> bool:
    starts = any(start.startswith(line[: len(start)]) for start in _STARTS)
    return starts and not line.rstrip().endswith(b"}")


def _run_to_json(run: Run) -> Object:
    return {
        **{name: getattr(run, name) for name in _RUN_TEXTS},
        "started": _number(run.started),
        "parameters": plain(run.parameters),
        "negotiated": dict(run.negotiated),
        "versions": dict(run.versions),
        "invalid": list(run.invalid),
        "headline": list(run.headline),
        "limited_by": run.limited_by and {"who": run.limited_by.limiter.value, "why": run.limited_by.reason},
        "metrics": {name: metric_to_json(metric) for name, metric in run.metrics.items()},
        "samples": [_sample_to_json(sample) for sample in run.samples],
    }


def _run_from_json(document: Mapping[str, Any]) -> Run:
    return Run(
        **{name: document[name] for name in _RUN_TEXTS},
        started=float(document["started"]),
        parameters=dict(document["parameters"]),
        negotiated=dict(document["negotiated"]),
        versions=dict(document["versions"]),
        invalid=tuple(document["invalid"]),
        metrics={name: metric_from_json(metric) for name, metric in document["metrics"].items()},
        headline=tuple(document.get("headline", HEADLINE)),
        limited_by=_bottleneck_from_json(document.get("limited_by")),
        samples=tuple(_sample_from_json(sample) for sample in document["samples"]),
    )


def _with_completion_latencies(run: Run) -> Run:
    """Return a run of an earlier version with its completion latencies named so."""
    if not any("fio.json" in sample.evidence for sample in run.samples):
        return run
    return replace(
        run,
        metrics={
            _COMPLETION.get(name, name): replace(metric, name=_COMPLETION.get(name, name))
            for name, metric in run.metrics.items()
        },
        headline=tuple(_COMPLETION.get(name, name) for name in run.headline),
        samples=tuple(
            replace(
                sample, values={_COMPLETION.get(name, name): value for name, value in sample.values.items()}
            )
            for sample in run.samples
        ),
    )


def _bottleneck_from_json(document: Mapping[str, Any] | None) -> Bottleneck | None:
    return Bottleneck(Limiter(document["who"]), document["why"]) if document else None


def _sample_to_json(sample: Sample) -> Object:
    return {
        "values": {name: _number(value) for name, value in sample.values.items()},
        "seconds": _number(sample.seconds),
        "ios": sample.ios,
        "latency": None if sample.latency is None else sample.latency.to_json(),
        "operations": {name: histogram.to_json() for name, histogram in sample.operations.items()},
        "invalid": list(sample.invalid),
        "series": [_series_to_json(series) for series in sample.series],
        "began": sample.began,
        "utilisation": None if sample.utilisation is None else asdict(sample.utilisation),
        "concurrency": None if sample.concurrency is None else _concurrency_to_json(sample.concurrency),
        "evidence": dict(sample.evidence),
    }


def _sample_from_json(document: Mapping[str, Any]) -> Sample:
    document = {_RENAMED_MEMBERS.get(name, name): value for name, value in document.items()}
    latency = document["latency"]
    return Sample(
        values={name: float(value) for name, value in document["values"].items()},
        seconds=float(document["seconds"]),
        ios=int(document["ios"]),
        latency=None if latency is None else Histogram.from_json(latency),
        evidence=dict(document["evidence"]),
        operations={
            name: Histogram.from_json(histogram) for name, histogram in document.get("operations", {}).items()
        },
        invalid=tuple(document.get("invalid", ())),
        series=tuple(_series_from_json(series) for series in document.get("series", ())),
        began=document.get("began"),
        utilisation=Utilisation(**document["utilisation"]) if document.get("utilisation") else None,
        concurrency=_concurrency_from_json(document["concurrency"]) if document.get("concurrency") else None,
    )


def _concurrency_to_json(story: ConcurrencySummary) -> Object:
    document: Object = plain(asdict(story))
    document["clients"] = document.pop("members")
    return document


def _concurrency_from_json(document: Mapping[str, Any]) -> ConcurrencySummary:
    members = [
        ClientSummary(**{**each, "values": {name: float(value) for name, value in each["values"].items()}})
        for each in document["clients"]
    ]
    numbers = {name: value for name, value in document.items() if name not in {"clients", "outliers"}}
    return ConcurrencySummary(**numbers, members=tuple(members), outliers=tuple(document["outliers"]))


def _series_to_json(series: Series) -> Object:
    return {
        "source": series.source,
        "name": series.name,
        "unit": series.unit.value,
        "host": series.host,
        "times": [_number(at) for at in series.times],
        "values": [_number(value) for value in series.values],
    }


def _series_from_json(document: Mapping[str, Any]) -> Series:
    return Series(
        document["source"],
        document["name"],
        Unit(document["unit"]),
        document["host"],
        tuple(map(float, document["times"])),
        tuple(map(float, document["values"])),
    )


def metric_to_json(metric: Metric) -> Object:
    """Return the metric for a name."""
    return {**asdict(metric), "unit": metric.unit.value, "better": metric.better.value}


def metric_from_json(document: Mapping[str, Any]) -> Metric:
    """Return the metric that :func:`metric_to_json` was given. Raises KeyError, ValueError and TypeError."""
    return Metric(
        document["name"],
        Unit(document["unit"]),
        Better(document["better"]),
        document["quantile"],
        document.get("operation"),
    )


def _verdict_to_json(verdict: Verdict) -> Object:
    threshold, interval = verdict.threshold, verdict.interval
    return {
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "threshold": {
            "metric": metric_to_json(threshold.metric),
            "op": threshold.op,
            "bound": _number(threshold.bound),
            "text": threshold.text,
            "place": threshold.place,
            "against": threshold.against,
        },
        "interval": None if interval is None else plain(asdict(interval)),
        "visible_loss": verdict.visible_loss,
    }


def _verdict_from_json(document: Mapping[str, Any]) -> Verdict:
    threshold, interval = document["threshold"], document["interval"]
    return Verdict(
        outcome=Outcome(document["outcome"]),
        reason=document["reason"],
        threshold=Threshold(
            metric_from_json(threshold["metric"]),
            threshold["op"],
            float(threshold["bound"]),
            threshold["text"],
            threshold["place"],
            threshold.get("against", ""),
        ),
        interval=None if interval is None else _interval_from_json(interval),
        visible_loss=document.get("visible_loss"),
    )


def _interval_from_json(document: Mapping[str, Any]) -> Interval:
    mean, low, high = (float(document[name]) for name in ("mean", "low", "high"))
    return Interval(mean, low, high, document["confidence"], document["count"])


def _number(value: float) -> float | str:
    """Return a JSON number, or the name of what JSON has no number for."""
    return float(value) if math.isfinite(value) else str(float(value))


def plain(value: object) -> Any:  # noqa: ANN401  # JSON
    """Return ``value`` as JSON values only."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float):
        if isinstance(value, kind) and math.isfinite(value):
            return kind(value)  # the plain type: subclasses do not travel
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [plain(each) for each in value]
    return str(value)
