"""The page of published experiments, and the data files that it is made of."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from storagetest.cli import main
from storagetest.errors import ResultError
from storagetest.installed_suites import SUITES
from storagetest.measure.run import METRICS, Run, Sample
from storagetest.measure.stats import Interval
from storagetest.report.base import Record
from storagetest.report.jsonl import from_json, read, to_json
from storagetest.report.papers import published
from storagetest.report.papers.findings import claim_rows, finding_counts
from storagetest.report.papers.page import document, table_rows
from storagetest.report.papers.rerun import Conditions, reruns, with_claims, with_conditions, with_point
from storagetest.report.papers.values import lines
from storagetest.verdict.claims import ClaimResult, Finding, unmeasured
from storagetest.workloads.base import workloads

A1 = published.experiment("a1")
AGREES = ClaimResult(Finding.AGREES, "meets the threshold", Interval(2.0, 1.5, 2.5, 0.9, 5))
RESULTS = {
    "read-small": AGREES,
    "read-large": replace(AGREES, finding=Finding.DIFFERS),
    "write-small": unmeasured("no target has the role <cifs>"),
}


def run(side: str, point: str, **values: float) -> Run:
    samples = tuple(Sample({n: v * f for n, v in values.items()}, 1.0, 100) for f in (0.9, 1.0, 1.1))
    made = Run("suites/papers/test_a1_one_user.py::test_one_user", "mixed-access", "t", f"v-{side}", "p", "c",
               {}, {}, samples, 0.0, metrics=METRICS)  # fmt: skip
    return with_point(made, "A1", side, point)


def rerun_records() -> list[Record]:
    first = with_claims(run("iscsi", "read 4KiB", latency_mean=0.002), RESULTS)
    runs = [
        first,
        run("cifs", "read 4KiB", latency_mean=0.001),
        run("cifs", "read 64KiB", latency_mean=0.004),
    ]
    return [from_json(to_json(Record(one))) for one in runs]


def test_a_rerun_is_read_from_results():
    rerun = reruns(rerun_records())["A1"]
    assert set(rerun.runs) == {("iscsi", "read 4KiB"), ("cifs", "read 4KiB"), ("cifs", "read 64KiB")}
    assert rerun.claims == RESULTS


def test_of_a_point_that_ran_twice_the_last_run_counts():
    old, new = run("iscsi", "read 4KiB", iops=1.0), run("iscsi", "read 4KiB", iops=2.0)
    records = [Record(replace(new, started=2.0)), Record(replace(old, started=1.0))]
    assert reruns(records)["A1"].runs["iscsi", "read 4KiB"].samples[1].values == {"iops": 2.0}


def test_claims_have_a_finding_an_interval_or_a_reason():
    rows = {row.text: row for row in claim_rows(A1, reruns(rerun_records())["A1"])}
    small, large, write, *others = rows.values()
    assert (small.finding, small.ratio, small.interval) == (Finding.AGREES, "2 x", "1.5 … 2.5 x (90 %)")
    assert large.finding is Finding.DIFFERS
    assert [one.required.split() for one in (small, large)] == [[">=", "1", "x"], ["<=", "1", "x"]]
    assert small.summary == ""
    assert (write.finding, write.interval) == (Finding.UNMEASURED, "")
    assert {row.reason for row in others} == {"these results do not contain it"}
    assert len(rows) == len(A1.claims)


def test_an_undecided_claim_has_its_values_in_the_columns_and_a_short_reason():
    result = replace(AGREES, finding=Finding.UNMEASURED, reason="latency_mean: required … undecided")
    rerun = reruns(rerun_records())["A1"]
    rerun.claims["read-small"] = result
    small, *_ = claim_rows(A1, rerun)
    assert (small.summary, small.ratio, small.reason) == (
        "undecided after 5 pairs of runs",
        "2 x",
        result.reason,
    )


def test_a_table_has_the_measured_row_below_the_published_one():
    published_row, here, *_ = table_rows(A1.tables[0], reruns(rerun_records())["A1"])
    assert (published_row.here, published_row.cells[1]) == (False, ("14.41 ms", ""))
    assert (here.here, here.cells[1][0]) == (True, "2.00 ms")
    assert here.cells[1][1].endswith("2.50 ms")
    assert here.cells[0] == ("", "")


def test_a_figure_has_published_and_measured_lines_with_intervals():
    drawn = {line.name: line for line in lines(reruns(rerun_records())["A1"], A1.figures[0])}
    assert set(drawn) == {"iSCSI (published)", "CIFS (published)", "iSCSI (here)", "CIFS (here)"}
    assert drawn["CIFS (here)"].points == ((4096, pytest.approx(0.001)), (65536, pytest.approx(0.004)))
    assert all(drawn["CIFS (here)"].ranges)


def test_a_model_is_marked_and_goes_to_the_published_number_of_clients():
    data = published.experiment("b5")
    records = [run("cluster", f"clients {n}", bandwidth=1e6 * n) for n in (1, 2)]
    rerun = reruns(
        Record(with_point(one, "B5", "cluster", f"clients {n}")) for n, one in enumerate(records, 1)
    )
    assert "B5" not in rerun  # the first place counts, which with_point() does not replace
    made = [replace(one, samples=tuple(replace(s, evidence={}) for s in one.samples)) for one in records]
    rerun = reruns(Record(with_point(one, "B5", "cluster", f"clients {n}")) for n, one in enumerate(made, 1))
    measured, model = lines(rerun["B5"], data.figures[0])
    assert measured.name == "read 1 MiB (here)"
    assert (model.name, model.points[-1][0]) == ("read 1 MiB (model, not measured)", 74.0)
    assert model.dashed_from == 2.0


def test_the_page_is_whole_and_escapes_texts(tmp_path, write_results):
    path = write_results(*rerun_records())
    assert main(["report", "page", "--papers", str(path), "-o", str(tmp_path / "papers.html")]) == 0
    page = (tmp_path / "papers.html").read_text()
    assert "<script" not in page
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    assert "&lt;cifs&gt;" in page
    assert page.count("<svg") == 2  # the figure of writes has its published lines only
    for word in ("agrees", "differs", "could not be measured here"):
        assert word in page
    assert "contain no run of A2" in page


def test_the_page_states_the_conditions_of_each_case():
    first, *others = rerun_records()
    assert "on 1970-01-01 at 00:00 UTC; the load of the controller was not" in page_text([first])
    known = with_conditions(first.run, Conditions(134.0, 7.25, 9.0, 2))
    text = "in 134 s; load average of the controller (2 processors): 7.2 before, 9.0 after"
    assert text in page_text([Record(known), *others])
    later = Record(replace(first.run, started=9.0))  # its load is not that of the earlier run
    assert text not in page_text([Record(known), later])
    assert text in page_text([Record(known), Record(replace(later.run, case="test_a1.py::test_other[s p]"))])


def page_text(records: list[Record]) -> str:
    return document([from_json(to_json(record)) for record in records], title="papers")


def test_without_reruns_the_page_lists_all_experiments():
    page = document([], title="none")
    for data in published.experiments():
        assert f"{data.id} ({data.title})".replace("'", "&#39;") in page


@pytest.mark.parametrize("data", published.experiments(), ids=lambda data: data.id)
def test_data_name_sides_of_the_experiment_and_metrics_that_exist(data):
    known = {name for load in workloads.all().values() for name in load.metrics}
    values = [value for claim in data.claims for value in (claim.left, claim.right) if value is not None]
    for figure in data.figures:
        values += [value for line in figure.measured for _, value in line.values()]
    for table in data.tables:
        for row in table.rows:
            for column in table.columns if row.side else ():
                point, metric = row.point or column.point, row.metric or column.metric
                values.append(published.Value(side=row.side, point=point, metric=metric))
    assert values or data.claims
    for value in values:
        assert value.side in data.sides, value
        assert value.metric in known, value
        assert value.point, value
    assert len({claim.id for claim in data.claims}) == len(data.claims)


def test_each_experiment_has_a_module_and_each_module_an_experiment():
    directory = SUITES / "papers"
    marked = {
        re.search(r'mark\.experiment\("(\w+)"\)', path.read_text())[1] for path in directory.glob("test_*.py")
    }
    assert marked == {path.stem for path in directory.glob("*.toml")}
    assert {data.id for data in published.experiments()} == {name.upper() for name in marked}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id = 1", "title"),
        ("= no TOML", "Invalid"),
    ],
)
def test_unreadable_data_are_an_error_with_the_file(tmp_path, monkeypatch, text, message):
    (tmp_path / "x.toml").write_text(text)
    monkeypatch.setattr(published, "DIRECTORY", tmp_path)
    with pytest.raises(ResultError, match=message) as caught:
        published.experiment("x")
    assert "x.toml" in str(caught.value)


def test_the_kept_run_has_the_findings_that_the_docs_state():
    directory = Path(__file__).parents[3] / "docs/papers"
    records = read(directory / "lab.jsonl")
    text = (directory / "index.md").read_text()
    page = (directory / "lab.html").read_text()
    counts = finding_counts(records)
    assert counts
    for data, numbers in counts:
        row = next(line for line in text.splitlines() if line.startswith(f"| {data.id} | `pytest"))
        assert row.endswith(" | {} | {} | {} |".format(*numbers))
        assert f'<section id="{data.id.lower()}"' in page
