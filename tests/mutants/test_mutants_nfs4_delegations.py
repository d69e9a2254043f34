"""The cases of delegations, tested: each broken rule is noticed, and a server that always delegates is sound.

The server is ours (``tests/controllers/delegating_nfs.py``): it delegates at every OPEN, for writing too,
which no server at hand does. With ``--write-mutants`` the table of docs/ is written again.
"""

import mutation_run
import pytest
from mutation_run import ROOT, Outcomes
from nfs4_delegation_mutants import MUTANTS
from selection import NFS, depends_on, selected_mutants

PAGE = ROOT / "docs" / "mutants-nfs4-delegations.md"
DEPENDS_ON = depends_on(
    "suites/conformance/nfs4/test_callbacks",
    "suites/conformance/nfs4/delegations.py",
    "suites/conformance/nfs4/conftest.py",
    "tests/controllers/delegating_nfs.py",
    "tests/controllers/pnfs_",
    "tests/mutants/nfs4_delegation_",
    "tests/mutants/rpc_records.py",
    codecs=NFS,
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
KEPT = ("passed", "observed", "skipped")
HEAD = """# Mutants: delegations of NFSv4.1

A small server of NFSv4.1 and 4.2 that delegates at every OPEN violates one rule at a time
(`tests/controllers/delegating_nfs.py`). Each line lists a mutant, the violated rule (sections of RFC 8881),
and the cases that detect it. `tox -e mutants` runs all of them;
`pytest tests/mutants/test_mutants_nfs4_delegations.py --write-mutants` writes this page.

"""


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the honest cases and every mutant; where only mutants were selected, these alone."""
    names, honest = selected_mutants(request, MUTANTS)
    where = tmp_path_factory.mktemp("mutants")
    return mutation_run.run("nfs4_delegation_mutation_run", where, only=names, honest=honest)


def test_a_server_that_always_delegates_is_not_accused(outcomes: Outcomes) -> None:
    honest = [one for one in outcomes.honest if one["target"].endswith("-honest")]
    bad = mutation_run.unexpected_outcomes(honest, KEPT)
    assert not bad, "\n".join(bad)
    assert sum(one["outcome"] in ("passed", "observed") for one in honest) > 100


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-nfs4-delegations.md again."""
    text, write = HEAD + mutation_run.table(MUTANTS, outcomes.killers), pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
