"""Mutation test of Lustre's cases of two clients: every case detects the mutants that it names.

The cases are those whose rule a file system in user space can break: it has no layouts that lfs shows.
Faults are those of lustre_server, group locks those of lustre_groups.
With ``--write-mutants`` the table of docs/ is written again.
"""

import fuse_mount
import lustre_fault_mutants
import lustre_group_mutants
import lustre_stripe_mutants
import mutation_run
import pytest
from lustre_stripe_mutants import MUTANTS
from mutation_run import ROOT, Outcomes
from shared_mutation_run import run

NOT_HERE = fuse_mount.why_not()
pytestmark = pytest.mark.skipif(NOT_HERE is not None, reason=str(NOT_HERE))

SUITE = ROOT / "suites" / "conformance" / "lustre"
PAGE = ROOT / "docs" / "mutants-lustre.md"
HEAD = """# Mutants: Lustre, two clients

The cases of `suites/conformance/lustre` that need two clients and read no layout, on the file systems in user
space of the [shared suite's mutants](mutants-shared.md): each violates one rule, and has both clients in one
mount or each in its own. The cases of faults run on file systems with the controls of a server: an OST
that is inactive, no space, a metadata server that stops; those of group locks on file systems with group
locks. Each line lists a mutant, the violated rule, and the cases that detect it. No case fails on the
correct file systems. `pytest tests/mutants/test_mutants_lustre.py --write-mutants` writes this page.

"""
KEPT = ("passed", "observed", "skipped")


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    return run(SUITE, processes=4, coherent=True)


def test_an_honest_file_system_fails_no_case(outcomes: Outcomes) -> None:
    bad = mutation_run.unexpected_outcomes(outcomes.honest, KEPT)
    assert len({one["id"] for one in outcomes.honest}) >= 60
    faults = [
        one for one in outcomes.honest if one["id"].startswith(("LUS-INACTIVE", "LUS-FULL", "LUS-RECOV"))
    ]
    assert [one["outcome"] for one in faults] == ["passed"] * 13
    assert not bad, "\n".join(bad)


def test_case_that_kills_nothing_states_the_reason(outcomes: Outcomes) -> None:
    assert not mutation_run.unexplained_cases(outcomes)


def test_every_claim_to_kill_names_a_mutant_and_is_true(outcomes: Outcomes) -> None:
    named = {name for one in outcomes.honest for name in one["kills"]}
    assert named <= set(MUTANTS), sorted(named - set(MUTANTS))
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


def test_every_mutant_of_lustre_is_killed(outcomes: Outcomes) -> None:
    own = [name for name, one in MUTANTS.items() if one.files.startswith("lustre_mutants:")]
    assert len(own) == 4
    own += lustre_fault_mutants.names() + lustre_group_mutants.names() + lustre_stripe_mutants.names()
    assert len(own) == 4 + 38 + 15 + 4
    assert not mutation_run.surviving(MUTANTS, outcomes, own)


def test_the_page_lists_every_mutant_that_is_killed(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    killed = {name: one for name, one in MUTANTS.items() if outcomes.killers(name)}
    text = HEAD + mutation_run.table(killed, outcomes.killers)
    mutation_run.check_page(PAGE, text, killed, write=pytestconfig.option.write_mutants, tried=None)
