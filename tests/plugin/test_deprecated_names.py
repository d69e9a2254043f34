"""Old names of fixtures, marks and library functions work for one release and name their replacement."""

SUITE = """\
import pytest
from storagetest.agent.casekit import observe, refused
from storagetest.agent.casekit.files import a_file

@pytest.mark.alone
@pytest.mark.case("C-1", level="MUST", section="X 1", spares="nothing to kill")
def test_on_a_client(here):
    a_file(here / "f")
    observe("a file")

def test_clients(crowd):
    assert [client.name for client in crowd] == ["here"]

@pytest.mark.needs("cut_off")
@pytest.mark.case("C-2", level="MUST", section="X 1")
def test_isolation(measure): assert False
"""


def test_old_names_work_and_warn(run_pytest):
    result = run_pytest("-rsx", "-W", "default", "--st-target", "disk", suite=SUITE)
    result.assert_outcomes(passed=2, skipped=1)
    renamed = {
        "the fixture here": "client_dir",
        "the mark alone": "exclusive",
        "the argument of the mark case spares": "no_mutant_reason",
        "the fixture crowd": "clients",
        "the capability cut_off": "isolation",
        "storagetest.agent.casekit": "storagetest.agent.testlib",
    }
    lines = [f"*{old} is deprecated. Use {new}*" for old, new in renamed.items()]
    result.stdout.fnmatch_lines_random(lines)


def test_a_suite_may_define_a_fixture_of_an_old_name(pytester):
    pytester.makepyfile(
        "import pytest\n@pytest.fixture\ndef wire(): return 3\ndef test_fixture(wire): assert wire == 3\n"
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=1)
