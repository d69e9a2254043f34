"""A fault that nearly every case sees is one red line for each target, and no case hides it."""

from __future__ import annotations

import pytest
from output_files import read_cases

SUITE = """\
import pytest
from storagetest.plugin.conformance.repeated_faults import fail_on_faults

pytestmark = pytest.mark.case(section="X 1")

@pytest.mark.case("OBSERVED", level="MAY")
def test_may(request, variant):
    fail_on_faults(request.node, ["a bit is set"])

@pytest.mark.case("KNOWN", level="MUST")
@pytest.mark.xfail
def test_known(request, variant):
    fail_on_faults(request.node, ["a bit is set"])

@pytest.mark.case("RED", level="MUST")
def test_red(request, variant):
    fail_on_faults(request.node, ["a bit is set", "a bit is set"])

@pytest.mark.case("LATER", level="MUST")
def test_later(request, variant):
    fail_on_faults(request.node, ["a bit is set"])

@pytest.mark.case("ANOTHER", level="MUST")
def test_another(request, variant):
    fail_on_faults(request.node, {"another bit is set": "bit 7", "a bit is set": "bit 6"})
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_fault_is_red_once_for_each_target(run_pytest, pytester, workers):
    run_pytest(*workers, suite=SUITE)
    for target in ("disk", "other"):
        records = read_cases(pytester.path, target)
        assert {name: record["outcome"] for name, record in records.items()} == {
            "OBSERVED": "observed",
            "KNOWN": "known",
            "RED": "failed",
            "LATER": "passed",
            "ANOTHER": "failed",
        }
        assert records["RED"]["message"].startswith("a bit is set. Later cases")
        assert records["ANOTHER"]["message"].startswith("another bit is set. Later cases")
        assert "found: bit 7" in records["ANOTHER"]["message"]
        assert "bit 6" not in records["ANOTHER"]["message"]
