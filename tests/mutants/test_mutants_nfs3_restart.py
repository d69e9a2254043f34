"""The cases of restarts, tested on NFS-Ganesha with a short grace period: an honest proxy fails none.

With ``--write-mutants`` the table of docs/ is written again.
"""

import ganesha
import mutation_run
import pytest
from mutation_run import ROOT, Outcomes
from nfs3_mutants import RESTART_MUTANTS as MUTANTS
from selection import NFS, depends_on, selected_mutants

PAGE = ROOT / "docs" / "mutants-nfs3-restart.md"
HEAD = """# Mutants: NFSv3, restarts

A proxy between the suite and NFS-Ganesha, which the cases restart, violates one rule at a time
(`tests/mutants/nfs3_restart_mutants.py`). Each line lists a mutant, the violated rule,
and the cases that detect it. `tox -e evidence` runs all of them; `pytest
tests/mutants/test_mutants_nfs3_restart.py --write-mutants` writes this page.

"""
DEPENDS_ON = depends_on(
    "suites/conformance/nfs3/",
    "src/storagetest/runner/restart.py",
    "tests/controllers/",
    "tests/mutants/nfs3_",
    "tests/mutants/rpc_records.py",
    codecs=NFS,
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ganesha.is_installed(), reason="NFS-Ganesha is not installed"),
]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the honest cases and every mutant; where only mutants were selected, these alone."""
    names, honest = selected_mutants(request, MUTANTS)
    where = tmp_path_factory.mktemp("restarts")
    return mutation_run.run_in_two("nfs3_restart_mutation_run", where, names, honest=honest)


def test_no_case_fails_because_of_the_proxy(outcomes: Outcomes) -> None:
    bad = mutation_run.unexpected_outcomes(outcomes.honest, ("passed", "observed", "known", "skipped"))
    assert not bad, "\n".join(bad)
    assert len(outcomes.honest) >= 8


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-nfs3-restart.md again."""
    text, write = HEAD + mutation_run.table(MUTANTS, outcomes.killers), pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
