"""Each iSCSI case fails on a faulty target with the received bytes, and the next case is unaffected."""

import re

import pytest
from iscsi_faults import CASES, MUTANTS, NOTHING
from mutation_run import Attempt, Outcomes, run

from storagetest.lab import Lab

pytestmark = pytest.mark.lab

PARTIAL = ("far-after-login",)
"""Faults that affect only some commands."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> Outcomes:
    return run("iscsi_faults", tmp_path_factory.mktemp("iscsi-faults"), timeout=900)


def describe(attempt: Attempt) -> str:
    return f"{attempt.case}: {attempt.outcome} after {attempt.seconds} s: {attempt.message}"


@pytest.mark.parametrize("name", [name for name in MUTANTS if name != NOTHING])
def test_each_case_fails_and_shows_the_received_bytes(outcomes: Outcomes, name: str) -> None:
    attempts = [one for one in outcomes.attempts[name] if one.acted]
    affected = {one.case for one in attempts}
    assert affected if name in PARTIAL else affected >= set(CASES) - {"ISC-LOGIN-02"}, affected
    assert not [describe(one) for one in attempts if one.outcome != "failed" or not one.message]
    bytes_shown = [one for one in attempts if re.search(r"127\.0\.0\.1:\d+.*[0-9a-f]{8}", one.message)]
    assert bytes_shown or name in PARTIAL, "\n".join(map(describe, attempts))


def test_each_case_passes_after_the_faults(outcomes: Outcomes) -> None:
    attempts = outcomes.attempts[NOTHING]
    assert {one.case for one in attempts} == set(CASES)
    assert not [describe(one) for one in attempts if one.outcome != "passed"]
