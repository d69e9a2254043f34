"""Mutation test of the two-client suite: every case detects the mutants that it names.

The file systems of :mod:`fuse_passthrough`, ``posix_*_mutants`` and :mod:`shared_mutants` are mounted on
this machine: no lab is needed. With ``--write-mutants`` the table of docs/ is written again.
"""

import fuse_mount
import mutation_run
import pytest
from mutation_run import ROOT, Outcomes
from shared_mutation_run import run
from shared_queue_mutants import MUTANTS

NOT_HERE = fuse_mount.why_not()
pytestmark = pytest.mark.skipif(NOT_HERE is not None, reason=str(NOT_HERE))

PAGE = ROOT / "docs" / "mutants-shared.md"
HEAD = """# Mutants: two clients

Two syscall sessions on one machine work in a file system in user space that violates one rule, each in its
own mount or both in one (`tests/mutants/shared_*mutants.py`, `tests/mutants/posix_*_mutants.py`). Each line
lists a mutant, the violated rule, and the cases of the shared suite that detect it: each case runs on each
mutant that it names, and fails. No case fails on the correct file systems. `pytest
tests/mutants/test_mutants_shared.py --write-mutants` writes this page.

"""
KEPT = ("passed", "observed", "skipped")


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    return run()


def test_an_honest_file_system_fails_no_case(outcomes: Outcomes) -> None:
    bad = mutation_run.unexpected_outcomes(outcomes.honest, KEPT)
    assert len({one["id"] for one in outcomes.honest}) >= 60
    assert not bad, "\n".join(bad)


def test_case_that_kills_nothing_states_the_reason(outcomes: Outcomes) -> None:
    assert not mutation_run.unexplained_cases(outcomes)


def test_every_claim_to_kill_names_a_mutant_and_is_true(outcomes: Outcomes) -> None:
    named = {name for one in outcomes.honest for name in one["kills"]}
    assert named <= set(MUTANTS), sorted(named - set(MUTANTS))
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


def test_every_mutant_of_two_clients_is_killed(outcomes: Outcomes) -> None:
    own = [name for name, one in MUTANTS.items() if one.files.startswith("shared_")]
    assert not mutation_run.surviving(MUTANTS, outcomes, own)


def test_the_page_lists_every_mutant_that_is_killed(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    killed = {name: one for name, one in MUTANTS.items() if outcomes.killers(name)}
    text = HEAD + mutation_run.table(killed, outcomes.killers)
    mutation_run.check_page(PAGE, text, killed, write=pytestconfig.option.write_mutants, tried=None)
