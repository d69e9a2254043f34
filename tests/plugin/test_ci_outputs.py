"""Outputs for CI, and the bridge to pytest-benchmark."""

import json
from xml.etree import ElementTree as ET

import pytest

SUITE = """\
import pytest
from storagetest.errors import HostError

def test_good(measure): measure("fake-metrics")
def test_invalid(measure): measure("fake-metrics", ios=10)
@pytest.mark.gate("iops >= 5000")
def test_slow(measure): measure("fake-metrics")
def test_error(attachment): raise HostError("client here: connection lost")
def test_assertion(attachment): assert 1 == 2, "the file is missing"
def test_skipped(attachment): pytest.skip("skipped")
@pytest.mark.xfail(strict=True, reason="known: wrong size")
def test_known(attachment): assert False
@pytest.fixture
def broken(): raise HostError("no route")
def test_setup(broken): pass
"""
GATES = 'thresholds: {fake-metrics: ["p99 <= 1s"]}\n'


@pytest.fixture
def finished_run(run_with_fake_metrics, pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "step.md"))
    (pytester.path / "step.md").write_text("# of an earlier step\n")
    arguments = ("--st-target", "disk", "--junit-xml=j.xml", "--st-markdown=out/run.md")
    return run_with_fake_metrics(*arguments, suite=SUITE, more=GATES)


def test_failures_errors_and_invalid_are_distinguished(finished_run, pytester):
    assert finished_run.ret == 1
    suite = ET.parse(pytester.path / "j.xml").getroot().find("testsuite")
    assert suite is not None
    cases = {str(case.get("name")).partition("[")[0]: case for case in suite.iter("testcase")}
    problems = {
        name: (node.tag, node.get("type"))
        for name, case in cases.items()
        for node in case
        if node.tag in ("failure", "error")
    }
    assert problems == {
        "test_invalid": ("failure", "INVALID"),
        "test_slow": ("failure", "FAILED"),
        "test_error": ("error", "HostError"),
        "test_assertion": ("failure", "FAILED"),
        "test_setup": ("error", "HostError"),
    }
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("3", "2", "2")
    failure = cases["test_slow"].find("failure")
    assert failure is not None
    assert "required >= 5,000/s" in str(failure.get("message"))
    properties = {node.get("name"): node.get("value") for node in cases["test_good"].iter("property")}
    assert properties["storagetest.status"] == "passed"
    assert float(str(properties["storagetest.iops [/s]"])) > 0

    text = (pytester.path / "out" / "run.md").read_text()
    assert "❌ 2 failed, 💥 2 error, ❔ 1 INVALID, ✅ 1 passed, 📌 1 known issue, ⏭️ 1 skipped" in text
    assert "(exit status 1)" in text
    assert "client here: connection lost" in text
    assert "AssertionError: the file is missing" in text
    assert (pytester.path / "step.md").read_text() == f"# of an earlier step\n{text}"


def test_an_unwritable_summary_changes_no_outcome(run_with_fake_metrics, pytester):
    (pytester.path / "file").write_text("")
    result = run_with_fake_metrics("--st-target", "disk", "--st-markdown=file/run.md")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["summary NOT WRITTEN: file/run.md: *"])


def test_with_workers_the_controller_writes_the_summary(run_with_fake_metrics, pytester):
    suite = "".join(f"def test_{number}(measure): measure('fake-metrics')\n" for number in range(3))
    result = run_with_fake_metrics("-n", "2", "--st-markdown=run.md", "--junit-xml=j.xml", suite=suite)
    assert result.ret == 0
    assert "✅ 6 passed" in (pytester.path / "run.md").read_text()


def test_the_summary_contains_collection_errors(run_with_fake_metrics, pytester):
    result = run_with_fake_metrics("--st-markdown=run.md", suite="import no_such_module\n")
    assert result.ret == 2
    text = (pytester.path / "run.md").read_text()
    assert "💥 1 error" in text
    assert "(exit status 2)" in text
    assert "no_such_module" in text


BENCHMARK = "\ndef test_benchmark(benchmark): benchmark(sum, [1, 2])\n"


def read_benchmarks(pytester: pytest.Pytester) -> list[dict]:
    return json.loads((pytester.path / "out.json").read_text())["benchmarks"]


def test_benchmark_json_contains_runs_and_benchmarks(run_with_fake_metrics, pytester):
    suite = "def test_metrics(measure): measure('fake-metrics', ios=20000)\n" + BENCHMARK
    result = run_with_fake_metrics(
        "--benchmark-json", "out.json", suite=suite, more='thresholds: {fake-metrics: ["iops >= 10"]}\n'
    )
    result.assert_outcomes(passed=3)
    entries = {entry["fullname"]: entry for entry in read_benchmarks(pytester)}
    assert set(entries) == {
        "test_suite.py::test_metrics[disk]",
        "test_suite.py::test_metrics[other]",
        "test_suite.py::test_benchmark",
    }
    entry = entries["test_suite.py::test_metrics[disk]"]
    assert entry["group"] == "fake-metrics"
    assert entry["param"] == "disk"
    assert entry["params"] == {"ios": 20000, "jobs": 1, "block_size": "4KiB"}
    assert entry["stats"]["data"] == pytest.approx([1 / 1000, 1 / 990, 1 / 1010])
    assert entry["extra_info"]["round"] == "seconds per operation, 1/iops"
    assert entry["extra_info"]["metrics"]["iops [/s]"] == pytest.approx(1000)
    assert entry["extra_info"]["verdicts"] == ["PASS iops >= 10"]


def test_saved_runs_are_compared(run_with_fake_metrics):
    run_with_fake_metrics("--benchmark-autosave").assert_outcomes(passed=2)
    slower = run_with_fake_metrics(
        "--benchmark-compare", "--benchmark-compare-fail=mean:5%", "--benchmark-columns=mean", disk=500
    )
    assert slower.ret != 0
    slower.stdout.fnmatch_lines_random(["test_metrics?disk? (NOW)*", "test_metrics?disk? (0001_*)*"])
    slower.stderr.fnmatch_lines(["*Performance has regressed*", "*test_metrics?disk?*(0001_*mean*100.0*"])


def test_two_runs_of_a_case_are_two_entries(run_with_fake_metrics, pytester):
    suite = "def test_metrics(measure): measure('fake-metrics'); measure('fake-metrics', ios=20000)\n"
    run_with_fake_metrics("--st-target", "disk", "--benchmark-json", "out.json", suite=suite)
    assert [entry["name"] for entry in read_benchmarks(pytester)] == [
        "test_metrics[disk]",
        "test_metrics[disk] 2",
    ]


def test_runs_are_added_only_on_request(run_with_fake_metrics):
    quiet = run_with_fake_metrics()
    assert "benchmark: 2 tests" not in quiet.stdout.str()
    run_with_fake_metrics("--st-benchmark").stdout.fnmatch_lines(["*benchmark 'fake-metrics': 2 tests*"])
    switched_off = run_with_fake_metrics("--st-benchmark", "--benchmark-disable")
    assert "benchmark 'fake-metrics'" not in switched_off.stdout.str()
    run_with_fake_metrics("-p", "no:benchmark").assert_outcomes(passed=2)


def test_with_workers_pytest_benchmark_is_disabled(run_with_fake_metrics, pytester):
    run_with_fake_metrics("-p", "benchmark", "-n", "2", "--benchmark-json", "out.json").assert_outcomes(
        passed=2
    )
    assert not (pytester.path / "out.json").exists()
