"""The cases of expired sessions, tested: each broken rule is noticed by a case that names it.

With ``--write-mutants`` the table of docs/ is written again.
"""

import kdc
import mutation_run
import pytest
import smbd
from mutation_run import ROOT, Outcomes
from selection import depends_on, selected_mutants
from smb2_expiry_mutants import MUTANTS

PAGE = ROOT / "docs" / "mutants-smb2-kerberos.md"
HEAD = """# Mutants: SMB sessions that expire

A proxy between the suite and Samba's smbd with Kerberos violates one rule at a time
(`tests/mutants/smb2_expiry_mutants.py`). The tickets of its KDC are valid for five seconds. Each line lists a
mutant, the violated rule, and the cases that detect it. `tox -e evidence` runs all of them; `pytest
tests/mutants/test_mutants_smb2_expiry.py --write-mutants` writes this page.

"""
DEPENDS_ON = depends_on(
    "suites/conformance/smb2/",
    "tests/controllers/kdc.py",
    "tests/kits/smbd.py",
    "tests/mutants/smb2_expiry_",
    "tests/mutants/smb2_proxy_connection.py",
    codecs=("smb2",),
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
NOT_HERE = kdc.why_not() or (
    "" if smbd.is_installed() else "smbd is not installed (script/setup installs it)"
)

pytestmark = [pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE), pytest.mark.slow]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the honest cases and every mutant; where only mutants were selected, these alone."""
    names, honest = selected_mutants(request, MUTANTS)
    where = tmp_path_factory.mktemp("mutants")
    return mutation_run.run("smb2_expiry_mutation_run", where, only=names, honest=honest)


def test_no_sound_server_is_accused(outcomes: Outcomes) -> None:
    bad = mutation_run.unexpected_outcomes(outcomes.honest, ("passed", "known"))
    assert not bad, "\n".join(bad)
    assert len(outcomes.honest) == 7


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes)


def test_case_that_kills_nothing_states_the_reason(outcomes: Outcomes) -> None:
    assert not mutation_run.unexplained_cases(outcomes)


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-smb2-kerberos.md again."""
    text, write = HEAD + mutation_run.table(MUTANTS, outcomes.killers), pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
