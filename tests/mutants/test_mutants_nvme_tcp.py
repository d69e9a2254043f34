"""Every broken rule of NVMe/TCP is noticed by a case that names it; where none is broken, nothing is.

The target is the small controller of tests/controllers: hermetic, and without known deviations.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from mutant_run import ROOT, Suite, honest, killers, table
from nvme_tcp_mutants import MUTANTS
from nvme_tcp_server import NQN, Server
from nvme_tcp_through import splitter

from storagetest.report.coverage import CaseOutcome, CaseRecord, Level

AT_ONCE = 14
"""Mutants of one run of pytest: starting it costs more than most of them."""

NAMES = list(MUTANTS)
GROUPS = [NAMES[at : at + AT_ONCE] for at in range(0, len(NAMES), AT_ONCE)]
KEPT = (CaseOutcome.PASSED, CaseOutcome.OBSERVED)
KILLED: dict[str, list[CaseRecord]] = {}
PAGE = ROOT / "docs" / "mutants-nvme-tcp.md"

HEAD = """# Mutants: NVMe/TCP

A proxy between the suite and a real controller breaks one rule at a time (`tests/mutants`). Each line is one
of them, the rule that it breaks, and the cases that notice. `tox -e mutants` runs them all; written by
`pytest tests/mutants/test_mutants_nvme_tcp.py --write-mutants`.

"""


@contextlib.contextmanager
def serve() -> Iterator[int]:
    with Server() as server:
        yield server.port


SUITE = Suite(
    "nvme_tcp",
    serve,
    splitter,
    {"protocol": "nvme-tcp", "nqn": NQN, "erase": "uuid.22222222-2222-4222-8222-222222222201"},
)


@pytest.fixture(scope="module")
def honest_records(tmp_path_factory: pytest.TempPathFactory) -> list[CaseRecord]:
    return honest(SUITE, tmp_path_factory.mktemp("honest"))


def test_an_honest_proxy_fails_no_case(honest_records: list[CaseRecord]) -> None:
    broken = [f"{one.id}: {one.message}" for one in honest_records if one.outcome not in KEPT]
    assert not broken, "\n".join(broken)
    assert len(honest_records) >= 120


def test_every_claim_is_a_mutant_and_every_mutant_is_claimed(honest_records: list[CaseRecord]) -> None:
    claims = {name for one in honest_records for name in one.kills}
    assert claims == set(MUTANTS)


def test_a_case_that_kills_nothing_says_why(honest_records: list[CaseRecord]) -> None:
    # A MAY allows both outcomes, so nothing can be broken about it.
    silent = [
        one.id for one in honest_records if not one.kills and not one.spares and one.level is not Level.MAY
    ]
    assert not silent


def test_every_known_issue_is_a_case(honest_records: list[CaseRecord]) -> None:
    known = tomllib.loads((ROOT / "suites/conformance/nvme_tcp/known.toml").read_text(encoding="utf-8"))
    listed = {case for cases in known.values() for case in cases}
    assert listed <= {one.id for one in honest_records}


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: f"{names[0]}…{names[-1]}")
def test_every_mutant_is_killed(names: list[str], tmp_path: Path) -> None:
    killed = killers(SUITE, [MUTANTS[name] for name in names], tmp_path)
    KILLED.update(killed)
    assert not [name for name in names if not killed[name]], "these survive"


def test_the_page_lists_every_mutant(pytestconfig: pytest.Config) -> None:
    """``--write-mutants`` writes docs/mutants-nvme-tcp.md again, after a run of all of them."""
    if pytestconfig.option.write_mutants and len(KILLED) == len(MUTANTS):
        PAGE.write_text(HEAD + table(MUTANTS, KILLED), encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    missing = [name for name in MUTANTS if f"| {name} | {MUTANTS[name].section} |" not in page]
    assert not missing, f"docs/{PAGE.name} does not list {', '.join(missing)}"
    assert "**nobody**" not in page
