"""The posix suite, tested: a broken promise is noticed by every case that names it, an honest one by none.

The file systems are those of :mod:`fuse_passthrough` and ``posix_*_mutants``, mounted on this machine. With
``--write-mutants`` the table of docs/ is written again.
"""

from fnmatch import fnmatchcase

import fuse_mount
import mutation_run
import pytest
from body_cases import claims, collected
from mutation_run import ROOT, Outcomes
from posix_mutants import MUTANTS
from posix_mutation_run import HONEST, run_all, run_on
from selection import selected_mutants

NOT_HERE = fuse_mount.why_not()
pytestmark = pytest.mark.skipif(NOT_HERE is not None, reason=str(NOT_HERE))

PAGE = ROOT / "docs" / "mutants-posix.md"
HEAD = """# Mutants: system calls on a mount

A file system in user space passes every request to a directory, with the caller's credentials, and violates
one rule (`tests/mutants/posix_*_mutants.py`). Each line lists a mutant, the violated rule, and the cases of
the posix suite that detect it: each case runs on each mutant that it names, and fails. No case fails on the
correct file system. `tox -e mutants` runs all of them; `pytest tests/mutants/test_mutants_posix.py
--write-mutants` writes this page.

"""
DEPENDS_ON = (
    "suites/conformance/posix/",
    "src/storagetest/agent/",
    "tests/mutants/posix_",
    "tests/mutants/body_cases.py",
    "tests/mutants/fuse_",
    "tests/mutants/mutant_row.py",
    "tests/mutants/mutation_run.py",
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
KEPT = ("passed", "skipped")


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Outcomes:
    """Run the honest file systems and every mutant; where only mutants were selected, these alone."""
    names, honest = selected_mutants(request, MUTANTS)
    cases = collected("posix")
    by_id = {case.id: case for case in cases}
    records = [
        {
            "id": name,
            "target": files,
            "outcome": answer.status.value,
            "message": answer.message,
            "level": by_id[name].level,
            "kills": by_id[name].kills,
            "no_mutant_reason": by_id[name].no_mutant_reason,
        }
        for files in (HONEST if honest else ())
        for name, answer in run_on(files, cases).items()
    ]
    found = Outcomes(records, run_all(cases, names))
    mutation_run.warn_of_second_attempts(found)
    return found


def test_an_honest_file_system_fails_no_case(outcomes: Outcomes) -> None:
    bad = mutation_run.unexpected_outcomes(outcomes.honest, KEPT)
    assert not bad, "\n".join(bad)
    lacking = {one["id"] for one in outcomes.honest if one["outcome"] == "skipped"}
    assert len(outcomes.honest) >= 2 * 450
    assert len(lacking) < 20, f"what cannot be tried here: {sorted(lacking)}"


def test_every_claim_is_a_mutant_and_every_mutant_is_claimed(outcomes: Outcomes) -> None:
    assert {name for one in outcomes.honest for name in one["kills"]} == set(MUTANTS)


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


def test_case_that_kills_nothing_states_the_reason(outcomes: Outcomes) -> None:
    assert not mutation_run.unexplained_cases(outcomes)


def test_claims_in_the_table_are_about_cases(outcomes: Outcomes) -> None:
    ids = {one["id"] for one in outcomes.honest}
    assert set(claims()["kills"]) <= ids
    idle = [glob for glob in claims()["no_mutant_reason"] if not any(fnmatchcase(name, glob) for name in ids)]
    assert not idle


def test_a_case_does_not_both_kill_and_spare(outcomes: Outcomes) -> None:
    assert not {one["id"] for one in outcomes.honest if one["kills"] and one["no_mutant_reason"]}


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_it(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-posix.md again."""
    text = HEAD + mutation_run.table(MUTANTS, outcomes.killers)
    write = pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
