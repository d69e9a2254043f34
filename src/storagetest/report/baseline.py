"""Baselines: the runs of earlier sessions by case, for gates and for ``storagetest compare``.

A baseline is a JSON document of cases, or a directory of such documents with one case each, for version
control: a changed case changes one small file. Rules:

1. ``schema`` leads the document; another version is refused by name. Of version 1 the latencies are left out:
   they were completion latencies, which are not compared with total ones. Gates on them state that there is
   none.
2. A case is identified by its node id, workload, variant, client, profile and parameters. The key contains no
   address and no time, so a target keeps its baseline if its address changes.
3. Each save appends one session with all the runs' values by metric. The latest 20 sessions are stored. A
   run that is INVALID, incomplete, or failed a gate against the baseline is not saved.
4. ``noise_floors`` are for the reader of the file; programs compute them from the sessions
   (:mod:`storagetest.verdict.baseline`).
5. Files are replaced atomically.
6. A results.jsonl can be used as a baseline: each of its records is a session.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from storagetest.errors import ResultError
from storagetest.files import replace_file
from storagetest.measure.run import METRICS, Metric, Run
from storagetest.measure.unit import Unit
from storagetest.report import jsonl
from storagetest.report.base import Record, Status
from storagetest.verdict import BASELINE, Outcome
from storagetest.verdict.baseline import Reference

SCHEMA = "storagetest.baseline/2"
_PREVIOUS_SCHEMA = "storagetest.baseline/1"
_COMPLETION_LATENCIES = {name for name, metric in METRICS.items() if metric.unit is Unit.SECONDS}
MOST_SESSIONS = 20

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class CaseKey:
    """What a case is known by; ``parameters`` are JSON with sorted names."""

    case: str
    workload: str
    variant: str
    client: str
    profile: str
    parameters: str


@dataclass(frozen=True, slots=True)
class BaselineSession:
    """The values of one session's runs by metric, in base units; ``started`` in seconds since the epoch."""

    started: float
    values: Mapping[str, tuple[float, ...]]
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BaselineEntry:
    """One case's sessions, the oldest first, and its metrics by name."""

    key: CaseKey
    metrics: Mapping[str, Metric]
    sessions: tuple[BaselineSession, ...]

    def reference(self, metric: str, source: str = "") -> Reference:
        """Return the values of ``metric`` in each session that has it."""
        values = (session.values.get(metric, ()) for session in self.sessions)
        return Reference(tuple(each for each in values if each), source)

    def joined(self, other: BaselineEntry) -> BaselineEntry:
        """Return both entries' sessions, the oldest first."""
        sessions = sorted((*self.sessions, *other.sessions), key=lambda session: session.started)
        return replace(self, metrics={**self.metrics, **other.metrics}, sessions=tuple(sessions))


@dataclass(frozen=True, slots=True)
class BaselineFile:
    """Contents of a path. ``learned``: it is a baseline; ``left_out`` is the number of INVALID records."""

    entries: Mapping[CaseKey, BaselineEntry]
    learned: bool = False
    left_out: int = 0
    _ratios: dict[str, dict[CaseKey, float]] = field(default_factory=dict, compare=False)

    def reference(self, key: CaseKey, metric: str, source: str = "") -> Reference:
        """Return the values of ``metric`` of a case, and the session ratios of the other cases."""
        entry = self.entries.get(key)
        if entry is None:
            return Reference((), source)
        if metric not in self._ratios:
            ratios = {each: other.reference(metric).session_ratio for each, other in self.entries.items()}
            self._ratios[metric] = {each: ratio for each, ratio in ratios.items() if ratio is not None}
        others = (ratio for each, ratio in self._ratios[metric].items() if each != key)
        return replace(entry.reference(metric, source), other_ratios=tuple(others))


def key_of(run: Run) -> CaseKey:
    """Return the key of the run's case."""
    return make_key(run.case, run.workload, run.variant, run.client, run.profile, run.parameters)


def make_key(
    case: str, workload: str, variant: str, client: str, profile: str, parameters: Mapping[str, Any]
) -> CaseKey:
    """Return the key of a case."""
    plain = json.dumps(jsonl.plain(parameters), sort_keys=True, ensure_ascii=False)
    return CaseKey(case, workload, variant, client, profile, plain)


def entries_of(records: Iterable[Record]) -> Mapping[CaseKey, BaselineEntry]:
    """Return an entry for each case, with a session for each of its records that is valid."""
    entries: dict[CaseKey, BaselineEntry] = {}
    for record in records:
        run = record.run
        if run.invalid or not run.samples:
            continue
        values: dict[str, list[float]] = {}
        for sample in run.samples:
            for name, value in sample.values.items():
                values.setdefault(name, []).append(value)
        session = BaselineSession(
            run.started, {name: tuple(each) for name, each in values.items()}, run.versions
        )
        metrics = {name: metric for name, metric in run.metrics.items() if name in values}
        _merge(entries, [BaselineEntry(key_of(run), metrics, (session,))])
    return entries


def load(path: Path, *, on_torn: Callable[[str], None] | None = None) -> BaselineFile:
    """Return the contents of a baseline (file or directory) or of a results.jsonl.

    Raises :class:`ResultError` that starts with the path.
    """
    texts = {file: _text(file) for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])}
    if not path.is_dir() and not _is_baseline(texts[path]):
        records = jsonl.read(path, on_torn=on_torn)
        return BaselineFile(entries_of(records), left_out=sum(bool(record.run.invalid) for record in records))
    entries: dict[CaseKey, BaselineEntry] = {}
    for file, text in texts.items():
        _merge(entries, _read(file, text))
    return BaselineFile(entries, learned=True)


def _is_baseline(text: str) -> bool:
    return text.lstrip().startswith("{") and f'"{SCHEMA.partition("/")[0]}/' in text[:200]


def save(path: Path, records: Iterable[Record]) -> int:
    """Append a session for each fit record to the baseline at ``path``; return how many cases were written.

    A path that is a directory, or does not end in ``.json``, becomes a directory with a file for each case.
    Raises :class:`ResultError`.
    """
    fresh = entries_of(record for record in records if _is_fit(record))
    directory = path.is_dir() or path.suffix != ".json"
    try:
        if directory:
            path.mkdir(parents=True, exist_ok=True)
            for key, entry in fresh.items():
                file = path / _file_name(key)
                _write(file, _joined(file, {key: entry}))
        elif fresh:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, _joined(path, fresh))
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}; name another with --st-save-baseline") from None
    return len(fresh)


def _is_fit(record: Record) -> bool:
    regressed = any(
        verdict.outcome is Outcome.FAIL and verdict.threshold.against == BASELINE
        for verdict in record.verdicts
    )
    return not regressed and record.ended not in (Status.ERROR, Status.FAILED)


def _joined(file: Path, fresh: Mapping[CaseKey, BaselineEntry]) -> Mapping[CaseKey, BaselineEntry]:
    entries: dict[CaseKey, BaselineEntry] = {}
    if file.exists():
        _merge(entries, _read(file, _text(file)))
    _merge(entries, fresh.values())
    return {key: replace(entry, sessions=entry.sessions[-MOST_SESSIONS:]) for key, entry in entries.items()}


def _merge(entries: dict[CaseKey, BaselineEntry], more: Iterable[BaselineEntry]) -> None:
    for entry in more:
        entries[entry.key] = entries[entry.key].joined(entry) if entry.key in entries else entry


def _file_name(key: CaseKey) -> str:
    words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{key.workload}-{key.variant}").strip("-")
    digest = hashlib.sha256(json.dumps(_key_to_json(key), sort_keys=True).encode()).hexdigest()
    return f"{words[:80]}-{digest[:10]}.json"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ResultError(f"{path}: not text in UTF-8") from None


def _write(path: Path, entries: Mapping[CaseKey, BaselineEntry]) -> None:
    document = {"schema": SCHEMA, "cases": [_to_json(entry) for _, entry in sorted(entries.items())]}
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(path, f"{text}\n")


def _key_to_json(key: CaseKey) -> Object:
    return {**asdict(key), "parameters": json.loads(key.parameters)}


def _to_json(entry: BaselineEntry) -> Object:
    floors = {name: entry.reference(name).floor for name in entry.metrics}
    return {
        **_key_to_json(entry.key),
        "metrics": {name: jsonl.metric_to_json(metric) for name, metric in entry.metrics.items()},
        "noise_floors": {name: floor for name, floor in floors.items() if floor is not None},
        "sessions": [
            {
                "started": session.started,
                "versions": dict(session.versions),
                "values": {name: list(values) for name, values in session.values.items()},
            }
            for session in entry.sessions
        ],
    }


def _read(path: Path, text: str) -> list[BaselineEntry]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ResultError(f"{path}: damaged: {error}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema not in (SCHEMA, _PREVIOUS_SCHEMA):
        raise ResultError(
            f"{path}: schema is {schema!r}; this version reads {SCHEMA!r} and {_PREVIOUS_SCHEMA!r}"
        )
    left_out = _COMPLETION_LATENCIES if schema == _PREVIOUS_SCHEMA else frozenset[str]()
    try:
        return [_from_json(each, left_out) for each in document["cases"]]
    except KeyError as error:
        raise ResultError(f"{path}: member {error} is missing") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise ResultError(f"{path}: not a baseline: {error}") from None


_RENAMED = {
    "suites/performance/test_own.py::test_own[": "suites/performance/test_custom_workloads.py::"
    "test_custom_workload["
}
"""Earlier → current node ids of storagetest's suites, to read baselines of earlier versions."""


def _from_json(document: Mapping[str, Any], left_out: Set[str]) -> BaselineEntry:
    case, workload, variant, client, profile = (
        str(document[name]) for name in ("case", "workload", "variant", "client", "profile")
    )
    for old, new in _RENAMED.items():
        case = case.replace(old, new)
    key = make_key(case, workload, variant, client, profile, document["parameters"])
    sessions = tuple(
        BaselineSession(
            float(session["started"]),
            {
                str(name): tuple(map(float, values))
                for name, values in session["values"].items()
                if name not in left_out
            },
            dict(session.get("versions", {})),
        )
        for session in document["sessions"]
    )
    metrics = {
        str(name): jsonl.metric_from_json(each)
        for name, each in document["metrics"].items()
        if name not in left_out
    }
    return BaselineEntry(key, metrics, sessions)
