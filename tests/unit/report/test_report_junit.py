"""JUnit properties: bare numbers in base units."""

from __future__ import annotations

from storagetest.measure.stats import estimate
from storagetest.report.junit import properties
from storagetest.verdict.base import Outcome


def test_properties_of_a_gated_run(make_record):
    record = make_record(outcome=Outcome.FAIL)
    pairs = dict(properties(record))
    assert pairs["storagetest.status"] == "failed"
    assert pairs["storagetest.variant"] == "nfs-v4.2-nconnect4"
    assert pairs["storagetest.parameter.block_size"] == "1MiB"
    known = estimate(record.run, record.run.metrics["bandwidth"])
    assert known is not None
    assert known.interval is not None
    assert float(pairs["storagetest.bandwidth [B/s]"]) == known.value
    assert float(pairs["storagetest.bandwidth.low [B/s]"]) == known.interval.low
    # A metric that was judged shows the interval it was judged by.
    assert float(pairs["storagetest.iops.high [/s]"]) == 19500
    assert pairs["storagetest.verdict"].startswith("FAIL iops >= 20000: iops: required")


def test_one_repeat_has_no_interval_and_a_percentile_of_few_ios_no_value(make_record):
    pairs = dict(properties(make_record(repeats=1, outcome=None)))
    assert "storagetest.bandwidth [B/s]" in pairs
    assert "storagetest.bandwidth.low [B/s]" not in pairs
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in pairs.items())
    assert "storagetest.bandwidth [B/s]" not in dict(properties(make_record(repeats=0)))
