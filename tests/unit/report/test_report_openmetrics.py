"""Results as OpenMetrics, read back by Prometheus' own parser."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.cli import main
from storagetest.errors import ResultError
from storagetest.measure.run import Better, Metric, Unit
from storagetest.measure.stats import estimate
from storagetest.report.formats.openmetrics import openmetrics
from storagetest.verdict.base import Outcome

parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="tox installs prometheus-client")


def parsed(text: str) -> dict[str, object]:
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def one(family, **labels):
    (found,) = [each for each in family.samples if labels.items() <= each.labels.items()]
    return found


def test_a_metric_is_a_gauge_in_its_base_unit_with_its_interval(make_record):
    record = make_record()
    families = parsed(openmetrics([record]))
    bandwidth = families["storagetest_bandwidth_bytes_per_second"]
    assert (bandwidth.type, bandwidth.unit) == ("gauge", "bytes_per_second")
    known = estimate(record.run, record.run.metrics["bandwidth"])
    assert known is not None
    assert known.interval is not None
    sample = one(bandwidth, variant="nfs-v4.2-nconnect4", workload="sequential", param_block_size="1MiB")
    assert sample.value == known.value
    assert sample.timestamp is None
    low = families["storagetest_bandwidth_interval_low_bytes_per_second"]
    assert one(low).value == known.interval.low
    assert families["storagetest_ios_per_second"].unit == "per_second"
    assert families["storagetest_latency_mean_seconds"].unit == "seconds"
    assert families["storagetest_client_cpu_ratio"].unit == "ratio"
    assert "storagetest_p99_seconds" in families
    assert "storagetest_p99_9_seconds" not in families  # 15,000 I/Os are too few for it


def test_outcomes_are_state_sets_and_versions_are_info(make_record):
    families = parsed(openmetrics([make_record(outcome=Outcome.FAIL)]))
    status = families["storagetest_status"]
    assert status.type == "stateset"
    states = {each.labels["storagetest_status"]: each.value for each in status.samples}
    assert states == {"passed": 0, "failed": 1, "invalid": 0, "error": 0, "skipped": 0}
    assert one(families["storagetest_verdict"], gate="iops >= 20000", storagetest_verdict="FAIL").value == 1
    info = one(families["storagetest_run"])
    assert info.name == "storagetest_run_info"
    assert info.labels["version_fio"] == "3.33"
    assert info.labels["negotiated_vers"] == "4.2"


def test_of_a_case_that_ran_again_the_last_counts(make_record):
    text = openmetrics([make_record(started=100.0), make_record(started=200.0, outcome=Outcome.FAIL)])
    families = parsed(text)
    assert one(families["storagetest_started_timestamp_seconds"]).value == 200.0
    assert one(families["storagetest_status"], storagetest_status="failed").value == 1


def test_with_timestamps_every_record_has_a_sample_in_order(make_record):
    records = [make_record(started=200.5), make_record(started=100.0, outcome=Outcome.FAIL)]
    families = parsed(openmetrics(records, timestamps=True))
    times = [float(each.timestamp) for each in families["storagetest_ios_per_second"].samples]
    assert times == [100.0, 200.5]
    failed = [each for each in families["storagetest_status"].samples if each.value]
    assert [each.labels["storagetest_status"] for each in failed] == ["failed", "passed"]


def test_odd_text_is_escaped(make_record):
    odd = 'a "quoted" \\ back\nslash'
    record = make_record(parameters={"direction": odd, "büro-tag": 3})
    sample = one(parsed(openmetrics([record]))["storagetest_repeats"])
    assert sample.labels["param_direction"] == odd
    assert sample.labels["param_b_ro_tag"] == "3"


def test_nothing_is_a_whole_text_too():
    assert openmetrics([]) == "# EOF\n"


def test_two_metrics_of_one_name_are_refused(make_record):
    record = make_record()
    twins = {name: Metric(name, Unit.SECONDS, Better.LOWER) for name in ("a.b", "a-b")}
    samples = tuple(replace(each, values=dict.fromkeys(twins, 1.0)) for each in record.run.samples)
    with pytest.raises(ResultError, match="share the name"):
        openmetrics([make_record(metrics=twins, samples=samples)])


def test_the_command_prints_or_writes(tmp_path, write_results, make_record, capsys):
    path = write_results(make_record())
    assert main(["report", "openmetrics", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("# EOF\n")
    assert main(["report", "openmetrics", str(path), "-o", str(tmp_path / "deep" / "st.prom")]) == 0
    assert (tmp_path / "deep" / "st.prom").read_text() == printed
