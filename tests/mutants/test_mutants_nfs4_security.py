"""The cases of RPCSEC_GSS and RPC-with-TLS, tested: each broken rule is noticed, and no sound server accused.

The server is ours (``tests/controllers/secure_nfs.py``), because a proxy has no keys; its KDC is MIT's. With
``--write-mutants`` the table of docs/ is written again.
"""

import ganesha
import kdc
import mutation_run
import pytest
from mutation_run import ROOT, Outcomes
from nfs4_security_mutants import MUTANTS
from selection import NFS, depends_on, selected_mutants

PAGE = ROOT / "docs" / "mutants-nfs4-security.md"
DEPENDS_ON = depends_on(
    "suites/conformance/nfs4/test_gss.py",
    "suites/conformance/nfs4/test_tls.py",
    "suites/conformance/nfs4/test_wrongsec.py",
    "suites/conformance/nfs4/security.py",
    "tests/controllers/ganesha.py",
    "tests/controllers/kdc.py",
    "tests/controllers/secure_nfs.py",
    "tests/mutants/nfs4_security_",
    "tests/mutants/rpc_records.py",
    codecs=NFS,
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
KEPT = ("passed", "observed", "skipped")
HEAD = """# Mutants: RPCSEC_GSS and RPC-with-TLS

A small NFSv4.0 server violates one rule at a time (`tests/controllers/secure_nfs.py`). Each line lists a
mutant, the violated rule, and the cases that detect it. `tox -e mutants` runs all of them; `pytest
tests/mutants/test_mutants_nfs4_security.py --write-mutants` writes this page.

"""

pytestmark = pytest.mark.skipif(bool(kdc.why_not()), reason=kdc.why_not())


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the honest cases and every mutant; where only mutants were selected, these alone."""
    names, honest = selected_mutants(request, MUTANTS)
    where = tmp_path_factory.mktemp("mutants")
    return mutation_run.run("nfs4_security_mutation_run", where, only=names, honest=honest)


def test_no_sound_server_is_accused(outcomes: Outcomes) -> None:
    honest = [one for one in outcomes.honest if one["target"].endswith("-honest")]
    bad = mutation_run.unexpected_outcomes(honest, KEPT)
    assert not bad, "\n".join(bad)
    assert sum(one["outcome"] in ("passed", "observed") for one in honest) > 60


def test_every_claim_to_kill_is_true(outcomes: Outcomes) -> None:
    assert not mutation_run.false_claims(outcomes), "\n".join(mutation_run.false_claims(outcomes))


def test_case_that_kills_nothing_states_the_reason(outcomes: Outcomes) -> None:
    assert not mutation_run.unexplained_cases(outcomes)


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_a_case_that_names_its_rule(outcomes: Outcomes, name: str) -> None:
    assert not mutation_run.surviving(MUTANTS, outcomes, [name])


@pytest.mark.skipif(not ganesha.is_installed(), reason="NFS-Ganesha is not installed")
def test_ganesha_with_kerberos_has_no_other_faults_than_the_known_ones(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    found = mutation_run.run("nfs4_kerberos_ganesha_run", tmp_path_factory.mktemp("ganesha"))
    bad = mutation_run.unexpected_outcomes(found.honest, (*KEPT, "known"))
    assert not bad, "\n".join(bad)
    assert sum(one["outcome"] in ("passed", "observed") for one in found.honest) > 50


def test_the_page_lists_every_mutant(outcomes: Outcomes, pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-nfs4-security.md again."""
    text = HEAD + mutation_run.table(MUTANTS, outcomes.killers)
    write = pytestconfig.option.write_mutants
    mutation_run.check_page(PAGE, text, MUTANTS, write=write, tried=outcomes.attempts)
