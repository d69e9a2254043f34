"""The cases of leases, tested on NFS-Ganesha with a short lease: an honest proxy fails none."""

import ganesha
import mutation_run
import pytest
from mutation_run import Outcomes
from nfs4_mutants import LEASE_MUTANTS as MUTANTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ganesha.is_installed(), reason="NFS-Ganesha is not installed"),
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the cases honestly, and on every mutant."""
    return mutation_run.run("nfs4_lease_mutation_run", tmp_path_factory.mktemp("leases"))


def test_no_case_fails_because_of_the_proxy(outcomes: Outcomes) -> None:
    bad = mutation_run.unexpected_outcomes(outcomes.honest, ("passed", "observed"))
    assert not bad, "\n".join(bad)
    assert len(outcomes.honest) >= 18


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])
