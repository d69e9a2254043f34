"""The NFSv4 suite, tested: every broken rule is noticed by a case that names it, and an honest proxy by none.

The real target is NFS-Ganesha on loopback. With ``--write-mutants`` the table of docs/ is written again.
"""

import mutation_run
import pytest
from mutation_run import ROOT, Outcomes
from nfs4_delegation_mutants import MUTANTS as DELEGATION_MUTANTS
from nfs4_layout_mutants import MUTANTS as LAYOUT_MUTANTS
from nfs4_mutants import KNFSD_MUTANTS, LEASE_MUTANTS, MUTANTS, RESTART_MUTANTS, SECURITY_MUTANTS
from selection import NFS, depends_on, selected_mutants

PAGE = ROOT / "docs" / "mutants-nfs4.md"
HEAD = """# Mutants: NFSv4

A proxy between the suite and NFS-Ganesha violates one rule at a time (`tests/mutants/nfs4_*_mutants.py`).
Each line lists a mutant, the violated rule (sections of RFC 8881), and the cases that detect it.
`tox -e mutants` runs all of them; `pytest tests/mutants/test_mutants_nfs4.py --write-mutants` writes this
page.

"""
DEPENDS_ON = depends_on(
    "suites/conformance/nfs4/",
    "suites/conformance/nfs_holes.py",
    "tests/controllers/ganesha.py",
    "tests/mutants/nfs4_",
    "tests/mutants/nfs_listed.py",
    "tests/mutants/rpc_records.py",
    codecs=NFS,
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
KEPT = ("passed", "observed", "known", "skipped")


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the honest cases and every mutant; where only mutants were selected, these alone."""
    names, honest = selected_mutants(request, MUTANTS)
    return mutation_run.run(
        "nfs4_mutation_run", tmp_path_factory.mktemp("mutants"), only=names, honest=honest
    )


def test_no_case_fails_because_of_the_proxy(outcomes: Outcomes) -> None:
    honest = [one for one in outcomes.honest if one["target"].endswith("-honest")]
    assert len(honest) > 500
    bad = mutation_run.unexpected_outcomes(honest, KEPT)
    assert not bad, "\n".join(bad)


def test_every_claim_to_kill_names_a_mutant_and_every_mutant_is_claimed(outcomes: Outcomes) -> None:
    """Other modules have the mutants of RPCSEC_GSS, layouts and delegations, and some of their cases."""
    claimed = {name for one in outcomes.honest for name in one["kills"]}
    here = set(MUTANTS) | set(KNFSD_MUTANTS) | set(LEASE_MUTANTS) | set(RESTART_MUTANTS)
    elsewhere = set(SECURITY_MUTANTS) | set(LAYOUT_MUTANTS) | set(DELEGATION_MUTANTS)
    assert here <= claimed <= here | elsewhere


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


def test_case_that_kills_nothing_states_the_reason(outcomes: Outcomes) -> None:
    assert not mutation_run.unexplained_cases(outcomes)


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-nfs4.md again."""
    text = HEAD + mutation_run.table(MUTANTS, outcomes.killers)
    write = pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
