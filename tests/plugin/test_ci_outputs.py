"""Output for CI systems: JUnit XML with failures, errors and INVALID, and Markdown."""

from __future__ import annotations

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
        "test_slow": ("failure", "BrokenPromise"),
        "test_error": ("error", "HostError"),
        "test_assertion": ("failure", "BrokenPromise"),
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
