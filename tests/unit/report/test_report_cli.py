"""`storagetest report` and `storagetest coverage`."""

import json
from pathlib import Path

import pytest

from storagetest.cli import main
from storagetest.errors import ResultError
from storagetest.report.cli import current_spelling
from storagetest.report.coverage import CaseOutcome, CaseRecord, KnownFault, Level, coverage, latest, load
from storagetest.report.formats.coverage import html_page, markdown


def report(*argv: object) -> int:
    return main(["report", *map(str, argv)])


def test_the_table_of_an_old_run(write_results, make_record, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    path = write_results(make_record(variant="nas-v3"))
    with path.open("a") as file:
        file.write('{"schema":"storagetest.result/2","no')
    assert report("table", path) == 0
    printed = capsys.readouterr()
    heads = printed.out.splitlines()[0].split()
    assert heads == ["variant", "case", "block", "MiB/s", "IOPS", "mean", "p99", "verdict"]
    assert "nas-v3" in printed.out
    assert f"{path}:2: damaged" in printed.err


def test_an_empty_file_is_reported(tmp_path, capsys):
    (tmp_path / "results.jsonl").touch()
    assert report("table", tmp_path / "results.jsonl") == 0
    assert "holds no runs" in capsys.readouterr().err


def test_errors_are_one_message_and_exit_code_1(tmp_path, capsys):
    for name in ("table", "openmetrics"):
        assert report(name, tmp_path / "none.jsonl") == 1
        assert capsys.readouterr().err.startswith(f"storagetest report {name}: ")
    assert report("allure", tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("storagetest report allure: no Allure results in")


def test_a_format_that_does_not_exist_is_misuse(capsys):
    with pytest.raises(SystemExit) as raised:
        report("pgae", "results.jsonl")
    assert raised.value.code == 2
    assert "invalid choice 'pgae'; did you mean 'page'?" in capsys.readouterr().err


@pytest.mark.html
def test_the_page_is_made_and_its_path_printed(sample_results, tmp_path, capsys):
    assert report("allure", sample_results, "-o", tmp_path / "out") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'index.html'}\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("page r.jsonl -o p.html", "report page r.jsonl -o p.html"),
        ("coverage", "report coverage"),
        ("export openmetrics --timestamps r.jsonl", "report openmetrics --timestamps r.jsonl"),
        ("report --jsonl r.jsonl", "report table r.jsonl"),
        ("report --jsonl=r.jsonl", "report table r.jsonl"),
        ("report allure-results -o out", "report allure allure-results -o out"),
        ("report -o out allure-results", "report allure -o out allure-results"),
    ],
)
def test_the_old_spellings_are_accepted_with_a_warning(tmp_path, monkeypatch, capsys, old, new):
    (tmp_path / "allure-results").mkdir()
    monkeypatch.chdir(tmp_path)
    assert current_spelling(old.split()) == new.split()
    assert "deprecated here; write: storagetest report " in capsys.readouterr().err


@pytest.mark.parametrize("argv", ["report page r.jsonl", "report --help", "report", "check", ""])
def test_the_current_spellings_are_left_alone(capsys, argv):
    assert current_spelling(argv.split()) == argv.split()
    assert capsys.readouterr().err == ""


def record(
    identifier: str, section: str, outcome: CaseOutcome = CaseOutcome.PASSED, **more: object
) -> CaseRecord:
    return CaseRecord(identifier, section, Level.MUST, outcome, target="flash", **more)  # type: ignore[arg-type]


STALE = KnownFault("a bit is set", "bytes are stale", "bits are zero")
RECORDS = [
    record("B", "3.10"),
    record("A", "3.9", CaseOutcome.FAILED, message="first line | with a bar\nsecond"),
    record("C", "3.9", observed=("the one way",)),
    record("D", "3.9", CaseOutcome.KNOWN),
]


def test_a_record_survives_json() -> None:
    details = {"observed": ("x",), "kills": ("m",), "seconds": 0.5, "message": "no", "no_mutant_reason": "s"}
    one = record("A", "1", CaseOutcome.WARNED, known_faults=(STALE,), **details)
    assert CaseRecord.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"id": "A"},
        {**record("A", "1").to_json(), "level": "SHALL"},
        {**record("A", "1").to_json(), "x": 1},
        {**record("A", "1").to_json(), "known_faults": [{"fault": "a bit is set"}]},
    ],
)
def test_what_is_no_record_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ResultError, match="not the record"):
        CaseRecord.from_json(broken)


def test_a_file_names_its_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"id": 1}\n', encoding="utf-8")
    with pytest.raises(ResultError, match=r"cases\.jsonl:1: "):
        load(path)


def test_sections_are_counted_in_their_order() -> None:
    counted = coverage(RECORDS)
    assert list(counted.by_section) == ["3.9", "3.10"]
    assert counted.by_section["3.9"] == {CaseOutcome.FAILED: 1, CaseOutcome.PASSED: 1, CaseOutcome.KNOWN: 1}
    assert counted.totals[CaseOutcome.PASSED] == 2
    assert [one.id for one in counted.worth_reading] == ["A", "D", "C"]


def test_a_case_that_ran_again_counts_once_with_its_last_outcome() -> None:
    again = record("A", "3.9")
    assert latest([*RECORDS, again]) == [RECORDS[0], again, *RECORDS[2:]]


def test_the_html_page_escapes_and_opens_where_something_failed() -> None:
    page = html_page([*RECORDS, record("<E>", "4", message="a < b")], title="A & B")
    for text in (
        "<title>A &amp; B</title>",
        "&lt;E&gt;",
        "a &lt; b",
        "<details open><summary>3.9: 3</summary>",
        "<details><summary>4: 1</summary>",
        "5 cases: 3 passed, 1 failed, 1 known",
    ):
        assert text in page
    assert "http" not in page


def test_a_known_fault_is_one_line_of_its_target() -> None:
    """A file of an earlier release has none."""
    records = [*RECORDS, *(record(name, "4", known_faults=(STALE,)) for name in "EF")]
    line = "known deviation of flash, in the replies of 2 cases: a bit is set: bytes are stale"
    assert markdown(records).splitlines().count(f"- {line}") == 1
    assert html_page(records).count(line) == 1
    assert "known deviation" not in markdown(RECORDS)
    assert "| E |" not in markdown(records)
    old = record("A", "1").to_json()
    del old["known_faults"]
    assert CaseRecord.from_json(old).known_faults == ()


def test_the_command_prints_or_writes_by_the_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", "coverage"]) == 1
    assert "cases.jsonl: no such file" in capsys.readouterr().err
    lines = "".join(json.dumps(one.to_json()) + "\n" for one in RECORDS)
    Path("cases.jsonl").write_text(lines, encoding="utf-8")
    assert main(["report", "coverage"]) == 0
    assert "| 3.9 | 3 | 1 | 1 | 1 |" in capsys.readouterr().out
    assert main(["report", "coverage", "-o", "out/page.html"]) == 0
    assert capsys.readouterr().out == "out/page.html\n"
    assert Path("out/page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_page_has_a_table_for_each_target() -> None:
    page = markdown(RECORDS, title="NVMe/TCP").splitlines()
    assert page[0] == "# NVMe/TCP"
    assert {
        "## flash",
        "| section | cases | passed | failed | known |",
        "| 3.9 | 3 | 1 | 1 | 1 |",
        "| **all** | 4 | 2 | 1 | 1 |",
        "| A | 3.9 | MUST | failed | first line \\| with a bar |",
        "| C | 3.9 | MUST | passed | the one way |",
    } <= set(page)
