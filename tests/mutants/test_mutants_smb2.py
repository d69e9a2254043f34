"""The SMB2 suite, tested: every broken rule is noticed by a case that names it, and an honest proxy by none.

The real target is smbd on loopback. With ``--write-mutants`` the table of docs/ is written again.
"""

import mutation_run
import pytest
from mutation_run import ROOT, Outcomes
from selection import depends_on, selected_mutants
from smb2_mutants import MUTANTS

PAGE = ROOT / "docs" / "mutants-smb2.md"
HEAD = """# Mutants: SMB 2 and 3

A proxy between the suite and a server violates one rule at a time (`tests/mutants/smb2_mutants.py`). It is
Samba's smbd. For what smbd does not offer (compression, persistent handles, symbolic links, POSIX extensions)
it is a server of the test kit (`tests/kits/smb2_server.py`).
Each line lists a mutant, the violated rule, and the cases that detect it. `tox -e mutants` runs all of them;
`pytest tests/mutants/test_mutants_smb2.py --write-mutants` writes this page.

"""
DEPENDS_ON = depends_on(
    "suites/conformance/smb2/",
    "tests/kits/smb2_",
    "tests/kits/smbd.py",
    "tests/mutants/smb2_",
    codecs=("smb2",),
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the honest cases and every mutant; where only mutants were selected, these alone."""
    names, honest = selected_mutants(request, MUTANTS)
    where = tmp_path_factory.mktemp("mutants")
    return mutation_run.run_in_two("smb2_mutation_run", where, names, honest=honest)


def test_no_case_fails_because_of_the_proxy(outcomes: Outcomes) -> None:
    bad = mutation_run.unexpected_outcomes(outcomes.honest, ("passed", "observed", "skipped", "known"))
    assert len(outcomes.honest) > 400
    assert not bad, "\n".join(bad)


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes)


def test_case_that_kills_nothing_states_the_reason(outcomes: Outcomes) -> None:
    assert not mutation_run.unexplained_cases(outcomes)


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-smb2.md again."""
    text = HEAD + mutation_run.table(MUTANTS, outcomes.killers)
    write = pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
