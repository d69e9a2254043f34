"""Verdicts against something measured, in the reports: a ratio's interval is not the metric's."""

from __future__ import annotations

from dataclasses import replace

from storagetest.report.jsonl import from_json, to_json
from storagetest.report.metric_values import metric_values
from storagetest.verdict import BASELINE, Interval, Outcome, Threshold, Verdict


def against(record, what: str):
    metric = record.run.metrics["iops"]
    threshold = Threshold(metric, ">=", 0.95, "iops >= baseline - 5 %", "targets.yaml:9:3", what)
    verdict = Verdict(Outcome.PASS, threshold, Interval(1.0, 0.98, 1.02, 0.9, 3), "as good as before")
    return replace(record, verdicts=(verdict,))


def test_what_a_gate_is_against_is_stored(make_record):
    record = against(make_record(), BASELINE)
    assert from_json(to_json(record)) == record


def test_results_of_before_there_were_such_gates_are_read(make_record):
    record = make_record()
    document = to_json(record)
    for verdict in document["verdicts"]:
        del verdict["threshold"]["against"]
    assert from_json(document) == record


def test_the_interval_of_a_ratio_is_not_shown_as_the_metrics(make_record):
    shown = metric_values(against(make_record(), BASELINE))["iops"]
    assert shown.interval is not None
    assert shown.interval.low > 1000
    assert shown.gate_text == "iops >= baseline - 5 %: PASS"
