"""Tables of requirements: the suites' own, the reader, and `storagetest report coverage --requirements`."""

import json
from pathlib import Path

import pytest

from storagetest.cli import main
from storagetest.errors import ResultError
from storagetest.installed_suites import SUITES
from storagetest.report.coverage import CaseOutcome, CaseRecord, Level
from storagetest.report.requirements import (
    Requirement,
    Standard,
    State,
    collect_case_ids,
    read,
    read_all,
    shares,
    unknown_cases,
    unused_cases,
)

TABLES = sorted(SUITES.rglob("requirements/*.toml"))

CASE = """\
import pytest

pytestmark = pytest.mark.case(section="X 1", level="MUST")


@pytest.mark.case("X-1")
def test_first():
    pass


@pytest.mark.parametrize("value", [pytest.param(1, marks=pytest.mark.case("X-2"))])
def test_second(value):
    pass


@pytest.mark.needs("iscsi-wire")
@pytest.mark.case("X-3")
def test_on_the_wire(variant):
    pass
"""

TABLE = """\
standard = "X 1"
title = "The standard"
requirements = [
    { section = "1.1", level = "MUST", text = "it answers", cases = ["X-1", "X-2"] },
    { section = "1.2", level = "MUST", text = "it forgets", untestable = "no <client> sees it" },
    { section = "1.3", level = "SHOULD", text = "it is kind" },
]
"""


@pytest.fixture(scope="module")
def known_cases() -> set[str]:
    return collect_case_ids({path.parent.parent for path in TABLES})


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    suite = tmp_path / "suites" / "x"
    (suite / "requirements").mkdir(parents=True)
    (suite / "test_x.py").write_text(CASE)
    (suite / "requirements" / "x.toml").write_text(TABLE)
    return tmp_path / "suites"


def table_of(suites: Path) -> Path:
    return suites / "x" / "requirements" / "x.toml"


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_every_case_of_a_table_exists(path: Path, known_cases: set[str]) -> None:
    assert unknown_cases([read(path)], known_cases) == []


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_no_must_of_a_table_is_open(path: Path) -> None:
    """The tables of NFS and SMB may list what no case checks yet, at most 5 %."""
    wanted = [each for each in read(path).requirements if each.level is Level.MUST]
    still_open = [f"{each.section}: {each.text}" for each in wanted if each.state is State.OPEN]
    allowed = len(wanted) // 20 if path.parent.parent.name in {"nfs3", "smb2"} else 0
    assert len(still_open) <= allowed, still_open


def test_two_tables_of_one_suite_are_of_two_standards() -> None:
    names = [(table.suite, table.name) for table in read_all(SUITES)]
    assert len(set(names)) == len(names)


def test_a_requirement_is_held_untestable_or_open(suites: Path) -> None:
    table = read(table_of(suites))
    assert (table.name, table.title, table.suite) == ("X 1", "The standard", suites / "x")
    assert table.requirements[0] == Requirement("1.1", Level.MUST, "it answers", ("X-1", "X-2"))
    assert [each.state for each in table.requirements] == [State.HELD, State.UNTESTABLE, State.OPEN]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('level = "SHOULD"', 'level = "MIGHT"', "requirement 3: level: expected MUST, .* not 'MIGHT'"),
        ('section = "1.3"', 'sections = "1.3"', "requirement 3: unknown key 'sections'"),
        ('section = "1.3", ', "", "requirement 3: has no 'section'"),
        ('text = "it is kind"', "text = 3", "requirement 3: text: expected a text, not 3"),
        ('text = "it is kind"', 'text = " "', "requirement 3: text: expected a text"),
        ('text = "it forgets"', 'text = "it forgets", cases = ["X-1"]', "requirement 2: has both cases and"),
        ('["X-1", "X-2"]', "[]", r"requirement 1: cases: expected a list of case ids, not \[\]"),
        ('["X-1", "X-2"]', '"X-1"', "requirement 1: cases: expected a list of case ids, not 'X-1'"),
        ('["X-1", "X-2"]', '["X-1", "X-1"]', "requirement 1: cases: an id is listed twice"),
        ('"no <client> sees it"', '""', "requirement 2: untestable: expected a text"),
        ('title = "The standard"\n', "", "has no 'title'"),
        ("requirements = [", "rows = [", "unknown key 'rows'"),
        ("standard = ", "standard ", "Expected '=' after a key"),
    ],
)  # fmt: skip
def test_an_invalid_table_is_one_sentence_with_its_place(
    suites: Path, old: str, new: str, message: str
) -> None:
    path = table_of(suites)
    assert old in TABLE
    path.write_text(TABLE.replace(old, new))
    with pytest.raises(ResultError, match=f"x.toml: .*{message}"):
        read(path)


def test_a_directory_without_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"no requirements/\*\.toml below it"):
        read_all(tmp_path)


def test_shares_count_by_level_and_by_what_has_run() -> None:
    requirements = (
        Requirement("1", Level.MUST, "a", ("X-1",)),
        Requirement("2", Level.MUST, "b", ("X-2", "X-3")),
        Requirement("3", Level.MUST, "c", ("X-4",)),
        Requirement("4", Level.MUST, "d"),
        Requirement("5", Level.MAY, "e", untestable="so"),
    )
    outcomes = {
        "X-1": CaseOutcome.SKIPPED,
        "X-2": CaseOutcome.SKIPPED,
        "X-3": CaseOutcome.FAILED,
        "X-4": CaseOutcome.ERROR,
    }
    records = [CaseRecord(name, "s", Level.MUST, outcome) for name, outcome in outcomes.items()]
    must, may = shares([Standard("X", "x", requirements, Path("x.toml"))], records)
    assert must.counts == {State.HELD: 3, State.UNTESTABLE: 0, State.OPEN: 1}
    assert (must.total, must.checked) == (4, 1)
    assert (may.level, may.counts[State.UNTESTABLE], may.checked) == (Level.MAY, 1, 0)


def test_cases_of_functions_parameters_and_other_targets_are_collected(suites: Path) -> None:
    tables = read_all(suites)
    known = collect_case_ids([suites / "x"])
    assert known == {"X-1", "X-2", "X-3"}
    assert unknown_cases(tables, known) == []
    assert unused_cases(tables, known) == ["X-3"]
    (sentence,) = unknown_cases(tables, known - {"X-2"})
    assert sentence.endswith("x.toml: X 1 1.1: no case has the id 'X-2'")


def test_a_suite_that_cannot_be_collected_is_an_error(suites: Path) -> None:
    (suites / "x" / "test_x.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(ResultError, match="pytest could not collect"):
        collect_case_ids([suites / "x"])


def coverage_of(suites: Path, *more: object) -> int:
    return main(["report", "coverage", "--requirements", "--suites", str(suites), *map(str, more)])


def test_the_command_prints_shares_and_open_requirements(suites, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert coverage_of(suites) == 0
    printed = capsys.readouterr().out
    assert "| X 1 | MUST | 2 | 1 (50 %) | 1 (50 %) |  |\n| X 1 | SHOULD | 1 |  |  | 1 (100 %) |" in printed
    assert "| X 1 | 1.3 | SHOULD | it is kind |" in printed
    assert "1 cases of these suites" in printed
    assert "it forgets" not in printed
    assert "X-3" not in printed
    assert coverage_of(suites, "--all") == 0
    printed = capsys.readouterr().out
    assert "| X 1 | 1.2 | MUST | it forgets (no <client> sees it) |" in printed
    assert "- X-3" in printed


def test_the_command_shows_what_a_run_has_checked(suites, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    record = CaseRecord("X-2", "X 1", Level.MUST, CaseOutcome.PASSED)
    (tmp_path / "cases.jsonl").write_text(f"{json.dumps(record.to_json())}\n")
    assert coverage_of(suites) == 0
    assert "| X 1 | MUST | 2 | 1 (50 %) | 1 (50 %) |  | 1 of 1 |" in capsys.readouterr().out


def test_the_html_page_shows_every_requirement(suites, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert coverage_of(suites, "-o", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    assert "<td>X-1, X-2</td>" in page
    assert "no &lt;client&gt; sees it" in page
    assert "Cases that hold no requirement: 1</summary><p>X-3</p>" in page


def test_mistakes_are_one_message(suites, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    table_of(suites).write_text(TABLE.replace("X-2", "X-9"))
    assert coverage_of(suites) == 1
    assert "X 1 1.1: no case has the id 'X-9'" in capsys.readouterr().err
    assert coverage_of(tmp_path / "none") == 1
    assert "none: no requirements/*.toml below it" in capsys.readouterr().err
    assert main(["report", "coverage", "--all"]) == 1
    assert "belong to --requirements" in capsys.readouterr().err
