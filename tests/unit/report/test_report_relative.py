"""Verdicts against something measured, in the reports: a ratio's interval is not the metric's."""

from __future__ import annotations

from storagetest.measure.run import METRICS
from storagetest.report.metric_values import metric_values
from storagetest.verdict import BASELINE, Interval, Outcome, Threshold, Verdict


def test_the_interval_of_a_ratio_is_not_shown_as_the_metrics(make_record):
    threshold = Threshold(METRICS["iops"], ">=", 0.95, "iops >= baseline - 5 %", "targets.yaml:9:3", BASELINE)
    verdict = Verdict(Outcome.PASS, threshold, Interval(1.0, 0.98, 1.02, 0.9, 3), "as good as before")
    shown = metric_values(make_record(verdicts=(verdict,)))["iops"]
    assert shown.interval is not None
    assert shown.interval.low > 1000
    assert shown.gate_text == "iops >= baseline - 5 %: PASS"
