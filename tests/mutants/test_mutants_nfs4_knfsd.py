"""The NFSv4 suite, tested on the lab's knfsd: callbacks, minor version 2, extended attributes.

These are the mutants of what NFS-Ganesha on loopback does not serve, or does otherwise. With
``--write-mutants`` the table of docs/ is written again.
"""

import mutation_run
import pytest
from mutation_run import ROOT, Outcomes
from nfs4_mutants import KNFSD_MUTANTS as MUTANTS
from selection import NFS, depends_on, selected_mutants

from storagetest.lab import Lab

pytestmark = pytest.mark.lab

PAGE = ROOT / "docs" / "mutants-nfs4-knfsd.md"
HEAD = """# Mutants: NFSv4 on knfsd

A proxy between the suite and the lab's knfsd violates one rule at a time (`tests/mutants/nfs4_*_mutants.py`,
those of the kind `knfsd`): rules that NFS-Ganesha, the target of [the others](mutants-nfs4.md), does not keep
or does not serve. Each line lists a mutant, the violated rule (sections of RFC 8881, 7862 and 8276), and the
cases that detect it. `tox -e mutants` runs all of them;
`pytest tests/mutants/test_mutants_nfs4_knfsd.py --write-mutants` writes this page.

"""
DEPENDS_ON = depends_on(
    "suites/conformance/nfs4/",
    "suites/conformance/nfs_holes.py",
    "tests/mutants/nfs4_",
    "tests/mutants/rpc_records.py",
    codecs=NFS,
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
KEPT = ("passed", "observed", "known", "skipped")


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> Outcomes:
    """Run the honest cases and every mutant; where only mutants were selected, these alone."""
    names, honest = selected_mutants(request, MUTANTS)
    return mutation_run.run(
        "nfs4_knfsd_mutation_run", tmp_path_factory.mktemp("mutants"), only=names, honest=honest
    )


def test_no_case_fails_because_of_the_proxy(outcomes: Outcomes) -> None:
    honest = [one for one in outcomes.honest if one["target"].endswith("-honest")]
    assert honest
    bad = mutation_run.unexpected_outcomes(honest, KEPT)
    assert not bad, "\n".join(bad)


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-nfs4-knfsd.md again."""
    text = HEAD + mutation_run.table(MUTANTS, outcomes.killers)
    write = pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
