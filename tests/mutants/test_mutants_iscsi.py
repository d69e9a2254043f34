"""The iSCSI suite, tested: every broken rule is noticed by a case that names it, and an honest proxy by none.

The real target is the lab's LIO (see the fixture ``lab``). With ``--write-mutants`` the table of docs/ is
written again.
"""

import mutation_run
import pytest
from iscsi_mutants import MUTANTS
from mutation_run import ROOT, Outcomes
from selection import depends_on, selected_mutants

from storagetest.lab import Lab
from storagetest.plugin.conformance.known_issues_table import read_suite_table

pytestmark = pytest.mark.lab

PAGE = ROOT / "docs" / "mutants-iscsi.md"
HEAD = """# Mutants: iSCSI

A proxy between the suite and the lab's LIO violates one rule at a time
(`tests/mutants/iscsi_*_mutants.py`). Each line lists a mutant, the violated rule, and the cases that detect
it. `tox -e mutants` runs all of them; `pytest tests/mutants/test_mutants_iscsi.py --write-mutants` writes
this page.

"""
DEPENDS_ON = depends_on(
    "suites/conformance/iscsi/",
    "tests/controllers/iscsi_",
    "tests/mutants/iscsi_",
    codecs=("iscsi", "scsi"),
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
KEPT = ("passed", "observed", "known", "skipped")


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> Outcomes:
    """Run the honest cases and every mutant; where only mutants were selected, these alone."""
    names, honest = selected_mutants(request, MUTANTS)
    return mutation_run.run(
        "iscsi_mutation_run", tmp_path_factory.mktemp("mutants"), only=names, honest=honest
    )


def test_no_case_fails_because_of_the_proxy(outcomes: Outcomes) -> None:
    # A SHOULD that LIO does not keep is a warning, with the proxy or without.
    honest = [
        one
        for one in outcomes.honest
        if one["target"].endswith("-honest") and (one["level"], one["outcome"]) != ("SHOULD", "warned")
    ]
    bad = mutation_run.unexpected_outcomes(honest, KEPT)
    assert len(outcomes.honest) > 400
    assert not bad, "\n".join(bad)


def test_every_claim_to_kill_names_a_mutant_and_every_mutant_is_claimed(outcomes: Outcomes) -> None:
    assert {name for one in outcomes.honest for name in one["kills"]} == set(MUTANTS)


def test_case_that_kills_nothing_states_the_reason(outcomes: Outcomes) -> None:
    assert not mutation_run.unexplained_cases(outcomes)


def test_every_known_issue_is_a_case(outcomes: Outcomes) -> None:
    table = read_suite_table(ROOT / "suites/conformance/iscsi")
    assert {case for issue in table for case, _ in issue.cases} <= {one["id"] for one in outcomes.honest}


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-iscsi.md again."""
    text = HEAD + mutation_run.table(MUTANTS, outcomes.killers)
    write = pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
