"""Whatever befalls an iSCSI case, it ends, says what it saw in bytes, and the next one is none the worse."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

import pytest
from iscsi_faults import CASES, MUTANTS, NOTHING
from mutation_run import Attempt, Outcomes, run

from storagetest.lab import Lab

pytestmark = pytest.mark.lab

ABOUT = ("far-after-login",)
"""Misfortunes that befall some commands only."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    with contextlib.ExitStack() as stack:
        name = os.environ.get("STORAGETEST_LAB", "default")
        if Lab.find(name) is None:
            lab = Lab.up(name, clients=0, owner=os.getpid(), progress=lambda _: None)
            stack.callback(lab.down)
        yield run("iscsi_faults", tmp_path_factory.mktemp("bad-luck"), timeout=200)


def said(one: Attempt) -> str:
    return f"{one.case}: {one.outcome} after {one.seconds} s: {one.message}"


@pytest.mark.parametrize("name", [name for name in MUTANTS if name != NOTHING])
def test_each_case_ends_as_a_failure_and_shows_what_came(outcomes: Outcomes, name: str) -> None:
    attempts = [one for one in outcomes.attempts[name] if one.acted]
    befallen = {one.case for one in attempts}
    assert befallen if name in ABOUT else befallen >= set(CASES) - {"ISC-LOGIN-02"}, befallen
    assert not [said(one) for one in attempts if one.outcome != "failed" or not one.message]
    bytes_shown = [one for one in attempts if re.search(r"127\.0\.0\.1:\d+.*[0-9a-f]{8}", one.message)]
    assert bytes_shown or name in ABOUT, "\n".join(map(said, attempts))


def test_afterwards_each_case_passes(outcomes: Outcomes) -> None:
    attempts = outcomes.attempts[NOTHING]
    assert {one.case for one in attempts} == set(CASES)
    assert not [said(one) for one in attempts if one.outcome != "passed"]
