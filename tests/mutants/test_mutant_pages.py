"""The pages of mutants: a run of some mutants writes their lines and keeps those of the others.

And what a mutation run reports of second attempts.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from mutation_run import Attempt, Outcomes, check_page, kills_of_second_attempts, table


@dataclass(frozen=True)
class Row:
    section: str
    description: str


MUTANTS = {name: Row("1.2", f"{name} is broken") for name in ("first", "second", "third")}
HEAD = "# Mutants\n\n"


def page_of(path: Path, killers: dict[str, list[str]]) -> Path:
    path.write_text(HEAD + table(MUTANTS, lambda name: killers.get(name, [])), encoding="utf-8")
    return path


def test_lines_of_mutants_that_were_not_tried_are_kept(tmp_path: Path) -> None:
    page = page_of(tmp_path / "page.md", {"first": ["A-1"], "third": ["A-3"]})
    text = HEAD + table(MUTANTS, lambda name: {"second": ["B-2"], "third": ["B-3"]}.get(name, []))
    check_page(page, text, MUTANTS, write=True, tried={"second", "third"})
    wanted = page_of(tmp_path / "wanted.md", {"first": ["A-1"], "second": ["B-2"], "third": ["B-3"]})
    assert page.read_text(encoding="utf-8") == wanted.read_text(encoding="utf-8")


def test_a_mutant_that_was_tried_and_survived_is_no_longer_listed_as_killed(tmp_path: Path) -> None:
    page = page_of(tmp_path / "page.md", {name: ["A"] for name in MUTANTS})
    text = HEAD + table(MUTANTS, lambda _: [])
    with pytest.raises(AssertionError, match="a mutant that no case kills"):
        check_page(page, text, MUTANTS, write=True, tried={"second"})


def test_a_page_without_a_mutant_is_incomplete(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(HEAD, encoding="utf-8")
    with pytest.raises(AssertionError, match="does not list first, second, third"):
        check_page(page, HEAD, MUTANTS, write=False, tried=None)


def test_a_line_by_hand_is_none_of_the_page(tmp_path: Path) -> None:
    text = HEAD + table(MUTANTS, lambda _: ["A"])
    page = page_of(tmp_path / "page.md", {name: ["A"] for name in MUTANTS})
    page.write_text(page.read_text(encoding="utf-8") + "| zeroth | 1.2 | by hand | B |\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="--write-mutants does not write"):
        check_page(page, text, MUTANTS, write=False, tried=None)
    check_page(page, text, MUTANTS, write=True, tried={"first"})
    assert page.read_text(encoding="utf-8") == text


def test_only_kills_of_second_attempts_are_reported() -> None:
    attempts = {
        "first": [Attempt("first", "A", "failed", acted=True, message="")],
        "second": [Attempt("second", "A", "failed", acted=True, message="", repeated=True)],
        "third": [
            Attempt("third", "A", "passed", acted=True, message="", repeated=True),
            Attempt("third", "B", "failed", acted=False, message="", repeated=True),
        ],
    }
    assert kills_of_second_attempts(Outcomes([], attempts)) == ["second by A"]
