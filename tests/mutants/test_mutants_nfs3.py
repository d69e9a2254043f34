"""The NFSv3 suite, tested: a case that names it notices each broken rule, and none an honest proxy.

The target is NFS-Ganesha on loopback. With ``--write-mutants`` the table of docs/ is
written again.
"""

import mutation_run
import pytest
from mutation_run import ROOT, Outcomes
from nfs3_mutants import MUTANTS, RESTART_MUTANTS
from selection import NFS, depends_on, selected_mutants

from storagetest.plugin.conformance.known_issues_table import read_suite_table

PAGE = ROOT / "docs" / "mutants-nfs3.md"
DEPENDS_ON = depends_on(
    "suites/conformance/nfs3/",
    "suites/conformance/nfs_holes.py",
    "tests/controllers/",
    "tests/mutants/nfs3_",
    "tests/mutants/nfs_listed.py",
    "tests/mutants/rpc_records.py",
    codecs=NFS,
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
KEPT = ("passed", "observed", "known")
RESTARTS = "has no restart"
"""The reason of the cases that restart the server: test_mutants_nfs3_restart.py runs them."""
LARGE_READS = "rtmax is 67108864 bytes"
"""The reason of a case for servers with a smaller rtmax: test_sound_nfs3.py runs it on one."""
ENDS_SERVER = "NLM-FREE-ALL"
"""A known issue: the server of this run ends when it receives the call of this case, so it is skipped."""
HEAD = """# Mutants: NFSv3

A proxy between the suite and NFS-Ganesha violates one rule at a time
(`tests/mutants/nfs3_*_mutants.py`). Each line lists a mutant, the violated rule, and the cases that
detect it. `tox -e mutants` runs all of them; `pytest tests/mutants/test_mutants_nfs3.py
--write-mutants` writes this page.

"""


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the honest cases and every mutant; where only mutants were selected, these alone.

    In two processes, each with a server of its own.
    """
    names, honest = selected_mutants(request, MUTANTS)
    where = tmp_path_factory.mktemp("mutants")
    return mutation_run.run_in_two("nfs3_mutation_run", where, names, honest=honest)


def test_an_honest_proxy_fails_no_case(outcomes: Outcomes) -> None:
    honest = [one for one in outcomes.honest if one["target"].endswith("-honest")]
    elsewhere = [one for one in honest if RESTARTS in one["message"] or LARGE_READS in one["message"]]
    run = [one for one in honest if one["id"] != ENDS_SERVER and one not in elsewhere]
    bad = mutation_run.unexpected_outcomes(run, KEPT)
    assert not bad, "\n".join(bad)
    assert len(honest) > 250


def test_every_claim_is_a_mutant_and_every_mutant_is_claimed(outcomes: Outcomes) -> None:
    assert {name for one in outcomes.honest for name in one["kills"]} == set(MUTANTS) | set(RESTART_MUTANTS)


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


def test_case_that_kills_nothing_states_the_reason(outcomes: Outcomes) -> None:
    assert not mutation_run.unexplained_cases(outcomes)


def test_every_known_issue_is_a_case(outcomes: Outcomes) -> None:
    table = read_suite_table(ROOT / "suites/conformance/nfs3")
    assert {case for issue in table for case, _ in issue.cases} <= {one["id"] for one in outcomes.honest}


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-nfs3.md again."""
    text = HEAD + mutation_run.table(MUTANTS, outcomes.killers)
    write = pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
