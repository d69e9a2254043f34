"""What CI systems are given: JUnit that tells failures, errors and INVALID apart, and Markdown."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

SUITE = """\
import pytest
from storagetest.errors import HostError

def test_good(measure): measure("dial")
def test_invalid(measure): measure("dial", ios=10)
@pytest.mark.gate("iops >= 5000")
def test_slow(measure): measure("dial")
def test_ours(attachment): raise HostError("client here: gone; plug it in")
def test_promise(attachment): assert 1 == 2, "the file was gone"
def test_skipped(attachment): pytest.skip("not today")
@pytest.mark.xfail(strict=True, reason="known: lies about its size")
def test_known(attachment): assert False
@pytest.fixture
def broken(): raise HostError("no route")
def test_setup(broken): pass
"""
GATES = 'thresholds: {dial: ["p99 <= 1s"]}\n'


@pytest.fixture
def ended(dial, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "step.md"))
    (pytester.path / "step.md").write_text("# of an earlier step\n")
    arguments = ("--st-target", "disk", "--junit-xml=j.xml", "--st-markdown=out/run.md")
    return dial(*arguments, suite=SUITE, more=GATES)


def test_fail_error_and_invalid_are_three_things_everywhere(ended, pytester: pytest.Pytester):
    assert ended.ret == 1
    suite = ET.parse(pytester.path / "j.xml").getroot().find("testsuite")
    assert suite is not None
    cases = {str(case.get("name")).partition("[")[0]: case for case in suite.iter("testcase")}
    found = {
        name: (node.tag, node.get("type"))
        for name, case in cases.items()
        for node in case
        if node.tag in ("failure", "error")
    }
    assert found == {
        "test_invalid": ("failure", "INVALID"),
        "test_slow": ("failure", "BrokenPromise"),
        "test_ours": ("error", "HostError"),
        "test_promise": ("failure", "BrokenPromise"),
        "test_setup": ("error", "HostError"),
    }
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("3", "2", "2")
    failure = cases["test_slow"].find("failure")
    assert failure is not None
    assert "asked >= 5,000/s" in str(failure.get("message"))
    properties = {each.get("name"): each.get("value") for each in cases["test_good"].iter("property")}
    assert properties["storagetest.status"] == "passed"
    assert float(str(properties["storagetest.iops [/s]"])) > 0

    text = (pytester.path / "out" / "run.md").read_text()
    assert "❌ 2 failed, 💥 2 error, ❔ 1 INVALID, ✅ 1 passed, 📌 1 known issue, ⏭️ 1 skipped" in text
    assert "(exit status 1)" in text
    assert "client here: gone; plug it in" in text
    assert "AssertionError: the file was gone" in text
    assert (pytester.path / "step.md").read_text() == f"# of an earlier step\n{text}"


def test_a_summary_that_cannot_be_written_changes_no_outcome(dial, pytester: pytest.Pytester):
    (pytester.path / "file").write_text("")
    result = dial("--st-target", "disk", "--st-markdown=file/run.md")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["summary NOT WRITTEN: file/run.md: *"])


def test_under_xdist_one_process_writes(dial, pytester: pytest.Pytester):
    suite = "".join(f"def test_{number}(measure): measure('dial')\n" for number in range(3))
    result = dial("-n2", "--st-markdown=run.md", "--junit-xml=j.xml", suite=suite)
    assert result.ret == 0
    assert "✅ 6 passed" in (pytester.path / "run.md").read_text()


def test_what_cannot_be_collected_is_in_it(dial, pytester: pytest.Pytester):
    result = dial("--st-markdown=run.md", suite="import no_such_module\n")
    assert result.ret == 2
    text = (pytester.path / "run.md").read_text()
    assert "💥 1 error" in text
    assert "(exit status 2)" in text
    assert "no_such_module" in text
