"""Write a case's labels, values and diagnostics to Allure; the only module that imports it.

Allure stores the state of the running test in the process that runs it (under xdist the worker). There,
once per case, :func:`identify` is called during its setup and :func:`on_case` or :func:`on_conformance` after
its call and before its teardown has ended; :func:`write_extras` is called once, at the end, by the
controlling process. They call Allure's hooks, which have no implementation without
``--alluredir``: then all except the last do nothing.

The tree is epic (protocol) → feature (suite or workload) → story (requirement): a standard's section, or the
gates. The variant is a parameter and a tag.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allure_commons import plugin_manager
from allure_commons.types import LabelType

from storagetest.report.allure.categories import FIXED, VERDICT_LABEL, categories_json, verdict_word
from storagetest.report.base import Record, Status
from storagetest.report.coverage import CaseRecord
from storagetest.report.latency_chart import distribution_svg
from storagetest.report.metric_values import MetricValue, case_text, metric_values, parameter_text
from storagetest.report.templates import render
from storagetest.report.timeline import timeline_svg

_NO_GATE = "measured, no gate"


def identify(
    *,
    epic: str,
    feature: str,
    variant: str,
    requirement: str = "",
    client: str = "",
    parameters: Mapping[str, object] | None = None,
) -> None:
    """Label the running test, so that the tree has it even if its setup fails.

    ``epic`` is the protocol's display name, ``feature`` the suite's or the workload's,
    ``requirement`` a standard's section, if the case has one (its gates are known when it has
    measured).
    """
    for kind, value in (
        (LabelType.EPIC, epic),
        (LabelType.FEATURE, feature),
        (LabelType.STORY, requirement),
        (LabelType.TAG, variant),
    ):
        if value:
            plugin_manager.hook.add_label(label_type=kind, labels=(value,))
    _parameters({"variant": variant, "client": client, **(parameters or {})})


def on_case(records: Sequence[Record], artefacts: Mapping[str, str] | None = None) -> None:
    """Add measured values to the running test: parameters, verdict, the table of values, and diagnostics.

    A case has mostly one record. ``artefacts`` (name → text) are attached too: dmesg and mountstats of a case
    that failed before it had any.
    """
    hook = plugin_manager.hook
    tables = []
    for record in records:
        run = record.run
        shown = metric_values(record)
        tables.append(_description(record, shown))
        title = f"{case_text(run)} on {run.variant}"
        prefix = f"{title}: " if len(records) > 1 else ""
        drawing = distribution_svg(run, f"{title}: latencies")
        _attach(f"{prefix}latency distribution.svg", drawing, "image/svg+xml", "svg")
        many = len(run.samples)
        repeats = {f" ({n} of {many})" if many > 1 else "": one for n, one in enumerate(run.samples, start=1)}
        for repeat, sample in repeats.items():
            drawing = timeline_svg(sample.series, f"{title}{repeat}")
            _attach(f"{prefix}timeline.svg{repeat}", drawing, "image/svg+xml", "svg")
        _attach(f"{prefix}values", _table_csv(shown), "text/csv", "csv")
        for name, values in (("negotiated", run.negotiated), ("versions", run.versions)):
            lines = "".join(f"{key} = {value}\n" for key, value in values.items())
            _attach(f"{prefix}{name}", lines, "text/plain", "txt")
        for repeat, sample in repeats.items():
            _attach_all(sample.evidence, prefix=prefix, suffix=repeat)
        _attach_all(record.artefacts, prefix=prefix)
    if len(records) == 1:
        run = records[0].run
        # Allure has no status for INVALID: it is a failure with that name and category.
        mark = "INVALID: " if records[0].status is Status.INVALID else ""
        hook.add_title(test_title=f"{mark}{case_text(run)} on {run.variant}")
        _parameters({"profile": run.profile, **run.parameters})
    if tables:
        hook.add_description_html(test_description_html="".join(tables))
        asked = [verdict.threshold.text for record in records for verdict in record.verdicts]
        hook.add_label(label_type=LabelType.STORY, labels=("; ".join(dict.fromkeys(asked)) or _NO_GATE,))
    word = verdict_word(records)
    if word:
        hook.add_label(label_type=VERDICT_LABEL, labels=(word,))
    _attach_all(artefacts or {})


def on_fixed() -> None:
    """Label the running test as one that passes although it is known to fail."""
    plugin_manager.hook.add_label(label_type=VERDICT_LABEL, labels=(FIXED,))


def on_conformance(case: CaseRecord, *, ladders: str = "", capture: bytes = b"") -> None:
    """Add a conformance case to the running test: its requirement, its observations, and its PDUs.

    ``ladders`` is the exchange of PDUs as text, ``capture`` the same as a pcap (empty: there was none).
    """
    hook = plugin_manager.hook
    hook.add_label(label_type=LabelType.TAG, labels=(case.section, case.level.value, case.outcome.value))
    # Excluded: a case keeps its history when the reading of its section is corrected.
    for name, value in (("case", case.id), ("section", case.section), ("level", case.level.value)):
        hook.add_parameter(name=name, value=_Shown(value), excluded=True, mode=None)
    _attach("observed", "".join(f"{what}\n" for what in case.observed), "text/plain", "txt")
    known = "".join(f"{each.fault}: {each.reason}\n" for each in case.known_faults)
    _attach("known deviations", known, "text/plain", "txt")
    _attach("on the wire", ladders, "text/plain", "txt")
    _attach("capture for Wireshark", capture, "application/vnd.tcpdump.pcap", "pcap")


def attach_page(name: str, page: str) -> None:
    """Attach an HTML page to the running test."""
    _attach(name, page, "text/html", "html")


def write_extras(results_dir: Path, environment: Mapping[str, str]) -> None:
    """Write ``environment.properties`` and ``categories.json`` next to the results."""
    results_dir.mkdir(parents=True, exist_ok=True)
    lines = [f"{_escaped(name, key=True)}={_escaped(value)}\n" for name, value in environment.items()]
    (results_dir / "environment.properties").write_text("".join(lines), encoding="utf-8")
    categories = json.dumps(categories_json(), indent=2)
    (results_dir / "categories.json").write_text(f"{categories}\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Shown:
    """Text that Allure shows unchanged: it prints a parameter's ``repr``, which quotes a string."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _parameters(values: Mapping[str, object]) -> None:
    for name, value in values.items():
        text = parameter_text(name, value)
        if text:
            plugin_manager.hook.add_parameter(name=name, value=_Shown(text), excluded=None, mode=None)


def _attach_all(texts: Mapping[str, str], *, prefix: str = "", suffix: str = "") -> None:
    for name, text in texts.items():
        _attach(f"{prefix}{name}{suffix}", text, *_type_of(text))


def _attach(name: str, body: str | bytes, kind: str, extension: str) -> None:
    if body:
        plugin_manager.hook.attach_data(body=body, name=name, attachment_type=kind, extension=extension)


def _type_of(text: str) -> tuple[str, str]:
    """JSON is shown as a tree; everything else as text."""
    try:
        json.loads(text)
    except ValueError:
        return "text/plain", "txt"
    return "application/json", "json"


def _escaped(text: str, *, key: bool = False) -> str:
    """Escape as a Java properties file wants it."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "")
    return re.sub(r"([=: #!])", r"\\\1", text) if key else text


def _rows(shown: Mapping[str, MetricValue]) -> Iterable[tuple[str, ...]]:
    yield "metric", "value", "interval", "repeats", "gate"
    for name, value in shown.items():
        yield name, value.text, value.range_text, str(value.repeats), value.gate_text


def _table_csv(shown: Mapping[str, MetricValue]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(_rows(shown))
    return text.getvalue()


def _description(record: Record, shown: Mapping[str, MetricValue]) -> str:
    """Return the case's description: why it did not pass, who limited it, and its values."""
    heads, *rows = _rows(shown)
    limit = record.run.limited_by
    limited = f"Limited by the {limit.limiter.value}: {limit.reason}" if limit else ""
    return render(
        "allure_description.html.j2", reasons=record.reasons, limited=limited, heads=heads, rows=rows
    )
