"""A run as Markdown."""

from __future__ import annotations

import re

from storagetest.cli import main
from storagetest.report.coverage import CaseOutcome, CaseRecord, Level
from storagetest.report.formats.markdown import MOST_BYTES, FailedCase, SessionSummary, markdown
from storagetest.verdict.base import Outcome


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
    cases = [
        CaseRecord("A", "RFC 7143 3", Level.MUST, CaseOutcome.FAILED, target="box"),
        CaseRecord("B", "RFC 7143 3", Level.MUST, CaseOutcome.PASSED, target="box"),
    ]
    text = markdown([], cases=cases)
    assert "<details><summary>box: 1 passed, 1 failed</summary>" in text
    assert ["RFC 7143 3", "1", "1"] in rows(text)


def test_the_command(write_results, make_record, capsys):
    assert main(["report", "markdown", str(write_results(make_record()))]) == 0
    assert capsys.readouterr().out.startswith("## storagetest: ✅ 1 passed\n")
