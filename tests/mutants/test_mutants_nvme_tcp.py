"""The NVMe/TCP suite, tested: a case that names it notices each broken rule, and none an honest proxy.

The target is the small controller of tests/controllers. With ``--write-mutants`` the table of docs/ is
written again.
"""

import mutation_run
import pytest
from mutation_run import ROOT, Outcomes
from nvme_tcp_mutants import MUTANTS
from nvme_tcp_mutation_run import UNANNOUNCED
from selection import depends_on, selected_mutants

from storagetest.plugin.conformance.known_issues_table import read_suite_table

PAGE = ROOT / "docs" / "mutants-nvme-tcp.md"
DEPENDS_ON = depends_on(
    "suites/conformance/nvme_tcp/",
    "tests/controllers/",
    "tests/mutants/nvme_tcp_",
    codecs=("nvme", "nvme_tcp"),
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
KEPT = ("passed", "observed")
HEAD = """# Mutants: NVMe/TCP

A proxy between the suite and a real controller violates one rule at a time
(`tests/mutants/nvme_tcp_*_mutants.py`). Each line lists a mutant, the violated rule, and the cases that
detect it. `tox -e mutants` runs all of them; `pytest tests/mutants/test_mutants_nvme_tcp.py
--write-mutants` writes this page.

"""


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the honest cases and every mutant; where only mutants were selected, these alone.

    In two processes: half of the time goes by in waiting for what a mutant holds back.
    """
    names, honest = selected_mutants(request, MUTANTS)
    where = tmp_path_factory.mktemp("mutants")
    return mutation_run.run_in_two("nvme_tcp_mutation_run", where, names, honest=honest)


def test_an_honest_proxy_fails_no_case(outcomes: Outcomes) -> None:
    honest = [one for one in outcomes.honest if one["target"].endswith("-honest")]
    run = [one for one in honest if one["outcome"] != "skipped" or not one["id"].startswith(UNANNOUNCED)]
    bad = mutation_run.unexpected_outcomes(run, KEPT)
    assert not bad, "\n".join(bad)
    assert len(honest) > 350


def test_every_claim_is_a_mutant_and_every_mutant_is_claimed(outcomes: Outcomes) -> None:
    assert {name for one in outcomes.honest for name in one["kills"]} == set(MUTANTS)


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


def test_case_that_kills_nothing_states_the_reason(outcomes: Outcomes) -> None:
    assert not mutation_run.unexplained_cases(outcomes)


def test_every_known_issue_is_a_case(outcomes: Outcomes) -> None:
    table = read_suite_table(ROOT / "suites/conformance/nvme_tcp")
    assert {case for issue in table for case, _ in issue.cases} <= {one["id"] for one in outcomes.honest}


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-nvme-tcp.md again."""
    text = HEAD + mutation_run.table(MUTANTS, outcomes.killers)
    write = pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
