"""The formats that a run writes: which there are, JUnit, Markdown, OpenMetrics."""

import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from storagetest import registry
from storagetest.cli import main
from storagetest.errors import ResultError
from storagetest.measure.run import Better, Metric
from storagetest.measure.stats import estimate
from storagetest.measure.unit import Unit
from storagetest.report.baseline import save
from storagetest.report.coverage import CaseOutcome, CaseRecord, KnownFault, Level
from storagetest.report.formats.base import ReportFormat, formats
from storagetest.report.formats.markdown import MOST_BYTES, FailedCase, SessionSummary, markdown
from storagetest.report.formats.openmetrics import openmetrics
from storagetest.report.junit import properties
from storagetest.verdict.base import Outcome

TOY = '''
"""A format of another package."""

from storagetest.report.formats.base import ResultsFormat, register


@register
class ToyFormat(ResultsFormat):
    """Write the variants of all runs, one a line."""

    name = "toy"
    summary = "variants, for this test"

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--shout", action="store_true", help="in capitals")

    def render(self, records, args):
        names = "".join(f"{record.run.variant}\\n" for record in records)
        return names.upper() if args.shout else names
'''


class EntryPoint:
    """What importlib.metadata returns for a line of another package's pyproject.toml."""

    name = value = "toy_format"

    def load(self) -> None:
        __import__(self.name)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Install the toy format as a package would, for one test."""
    (tmp_path / "toy_format.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(formats, "_entries", dict(formats.all()))
    monkeypatch.setattr(formats, "_loaded", False)
    entries = {"storagetest.report.formats": [EntryPoint()]}
    monkeypatch.setattr(registry, "entry_points", lambda *, group: entries.get(group, []))
    yield
    sys.modules.pop("toy_format", None)


def test_format_of_another_package_has_sub_command_options_and_output(
    toy, tmp_path, make_record, write_results, capsys
):
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    assert "toy        variants, for this test" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["report", "toy", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "Write the variants of all runs, one a line." in text
    assert "--shout in capitals" in text

    results, output = write_results(make_record(variant="nas-v3")), tmp_path / "deep" / "toy.txt"
    assert main(["report", "toy", str(results)]) == 0
    assert capsys.readouterr().out == "nas-v3\n"
    assert main(["report", "toy", "--shout", str(results), "-o", str(output)]) == 0
    assert output.read_text() == "NAS-V3\n"


def test_the_reference_page_has_a_format_of_another_package(toy):
    script = runpy.run_path(str(Path(__file__).parents[3] / "script" / "reference.py"))
    text = script["command_line_page"]().partition("## storagetest report toy\n")[2]
    assert "Write the variants of all runs, one a line." in text
    assert "| `--shout` | In capitals. |" in text


def test_an_entry_point_that_fails_is_named(toy, tmp_path, capsys):
    (tmp_path / "toy_format.py").write_text("import no_such_module")
    assert main(["report", "table", "x"]) == 4
    message = capsys.readouterr().err
    assert "entry point toy_format = toy_format of group storagetest.report.formats failed to load" in message


@pytest.mark.parametrize("kind", formats.all().values(), ids=lambda kind: kind.name)
def test_every_format_is_described(kind: type[ReportFormat], capsys):
    assert kind.__module__ == f"storagetest.report.formats.{kind.name}"
    assert kind.__doc__
    assert kind.summary
    with pytest.raises(SystemExit) as raised:
        main(["report", kind.name, "--help"])
    assert raised.value.code == 0
    assert kind.__doc__.split()[0] in capsys.readouterr().out


def test_the_formats_that_there_are():
    assert list(formats.all()) == [
        "allure",
        "baseline",
        "coverage",
        "markdown",
        "openmetrics",
        "page",
        "table",
    ]


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


def rows(text: str) -> list[list[str]]:
    return [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in text.splitlines() if line.startswith("|")]


def test_the_head_states_the_outcome():
    session = SessionSummary({"passed": 12, "failed": 1, "invalid": 2, "odd": 1}, 61.4, 1)
    (head,) = markdown([], session=session).splitlines()
    assert head == "## storagetest: ❌ 1 failed, ❔ 2 INVALID, ✅ 12 passed, 1 odd in 61 s (exit status 1)"
    assert markdown([]).strip() == "## storagetest: no case ran"


def test_what_did_not_pass_comes_first_with_its_reason(make_record):
    text = markdown([make_record(), make_record(variant="nas-v3", outcome=Outcome.FAIL)])
    assert text.startswith("## storagetest: ❌ 1 failed, ✅ 1 passed")
    (line,) = [line for line in text.splitlines() if line.startswith("- ")]
    assert "**failed** <code>suites/performance/test&#95;sequential.py" in line
    assert "below the threshold" in line
    assert text.index("What did not pass") < text.index("What was measured")


def test_values_stand_with_their_intervals(make_record):
    table = rows(markdown([make_record(variant="nas|v3")]))
    assert table[0] == ["variant", "case", "bandwidth", "iops", "latency_mean", "p99", "verdict"]
    assert table[2][0] == "nas\\|v3"
    assert "<sub>18.5k/s … 19.5k/s (99%)</sub>" in table[2][3]
    assert table[2][-1] == "✅ passed"


def test_no_text_of_a_case_is_mark_up():
    problem = FailedCase(
        "failed", "t.py::t[a|b_c*d]", "<img src=x> `code` **bold** [l](http://x)\n<b>more</b>"
    )
    text = markdown([], session=SessionSummary({"failed": 1}, 0, 1, [problem]))
    assert "<img" not in text
    assert "\\*\\*bold\\*\\* \\[l\\](http://x)" in text
    assert "<pre>&lt;b&gt;more&lt;/b&gt;</pre>" in text


def test_long_runs_have_an_end_and_say_so(make_record):
    problems = [FailedCase("failed", f"t.py::t{number}", "why " * 4000) for number in range(150)]
    text = markdown([make_record()] * 450, session=SessionSummary({"failed": 150}, 0, 1, problems))
    assert "…and 50 more cases" in text
    assert "…and 50 more rows" in text
    cases = [
        CaseRecord(str(n), f"S {'é' * 4000}{n}", Level.MUST, CaseOutcome.PASSED, target="t")
        for n in range(400)
    ]
    assert len(markdown([], cases=cases).encode()) <= MOST_BYTES


def test_sections_of_the_standards_are_folded_by_target():
    known = KnownFault("a bit is set", "bytes are stale")
    cases = [
        CaseRecord("A", "RFC 7143 3", Level.MUST, CaseOutcome.FAILED, target="box"),
        CaseRecord("B", "RFC 7143 3", Level.MUST, CaseOutcome.PASSED, target="box", known_faults=(known,)),
    ]
    text = markdown([], cases=cases)
    assert "<details><summary>box: 1 passed, 1 failed</summary>" in text
    assert ["RFC 7143 3", "1", "1"] in rows(text)
    assert "- known deviation of box, in the replies of 1 case: a bit is set: bytes are stale\n" in text


def test_the_command(write_results, make_record, capsys):
    assert main(["report", "markdown", str(write_results(make_record()))]) == 0
    assert capsys.readouterr().out.startswith("## storagetest: ✅ 1 passed\n")


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
    assert states == {"passed": 0, "learning": 0, "failed": 1, "invalid": 0, "error": 0, "skipped": 0}
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


def test_the_baseline_format_prints_what_gates_find(make_record, tmp_path, capsys):
    path = tmp_path / "base.json"
    for factor in (1, 1.01, 0.99, 1.02, 0.98, 1.0):
        record = make_record()
        samples = tuple(
            replace(each, values={"iops": each.values["iops"] * factor, "p99": each.values["p99"]})
            for each in record.run.samples
        )
        save(path, [replace(record, run=replace(record.run, samples=samples))])
    assert main(["report", "baseline", str(path)]) == 0
    out = capsys.readouterr().out
    assert re.search(
        r"^  iops >= baseline - 5 %: finds a loss of \d+ % or more in 3 runs \(6 sessions\)$",
        out,
        re.MULTILINE,
    )
    assert "p99" not in out
    assert main(["report", "baseline", str(path), "--metric", "p99", "--margin", "10"]) == 0
    assert "  p99 <= baseline + 10 %: finds a rise of " in capsys.readouterr().out
    for wrong, message in (
        (["--gates", "0"], "--gates is at least 1"),
        (["--margin", "100"], "between 0 and 100"),
        (["--metric", "iop"], "has no metric iop; it has "),
    ):
        assert main(["report", "baseline", str(path), *wrong]) == 1
        assert message in capsys.readouterr().err
