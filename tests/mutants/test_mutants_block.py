"""Every block mutant is killed by a case that claims it, and an honest disk fails none.

``--write-mutants`` writes docs/mutants-block.md again.
"""

from functools import cache, partial
from pathlib import Path

import block_mutation_run
import mutation_run
import pytest
from block_files import MUTANTS
from body_cases import collected

from storagetest.runner.client_cases import ClientCaseStatus

NOT_HERE = block_mutation_run.why_not()
TABLE = Path(__file__).parents[2] / "docs" / "mutants-block.md"
HEAD = """# Mutants: block devices

Each mutant is a disk that violates one rule: a file served over FUSE, under a loop device
(`tests/mutants/block_files.py`). `tox -e mutants` runs all of them; `pytest
tests/mutants/test_mutants_block.py --write-mutants` writes this page.

`flush-ignored` shows that the cases detect a flush that is acknowledged and not executed, if the test can
cut the power: the mutant stores unflushed data separately, and discards it on request. On a target whose
power cannot be cut, these cases are skipped with that reason. Crash tests check whether a real array keeps
flushed data.

"""

pytestmark = pytest.mark.skipif(NOT_HERE is not None, reason=str(NOT_HERE))

DEVICE = {"protocol": "local", "device": "/dev/null", "erase": "nothing"}
cases = cache(partial(collected, "block", DEVICE))


@pytest.mark.parametrize("sector", [512, 4096])
def test_an_honest_disk_fails_no_case(sector: int) -> None:
    """With blocks of 4,096 bytes a case's range has an eighth of the blocks."""
    outcome = block_mutation_run.run(None, cases(), sector=sector)
    bad = {name: answer.message for name, answer in outcome.answers.items() if answer.status not in GOOD}
    assert not bad
    tried = sum(answer.status is ClientCaseStatus.PASSED for answer in outcome.answers.values())
    assert tried >= 60, f"only {tried} of {len(outcome.answers)} cases could be tried"


DEPENDS_ON = (
    "suites/conformance/block/",
    "src/storagetest/agent/",
    "tests/mutants/block_",
    "tests/mutants/body_cases.py",
    "tests/mutants/fuse_",
    "tests/mutants/mutation_run.py",
)
"""Starts of the paths that all of these mutants depend on (see :mod:`selection`)."""
GOOD = (ClientCaseStatus.PASSED, ClientCaseStatus.SKIPPED)


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_it_is_killed_by_every_case_that_claims_to(name: str) -> None:
    outcome = block_mutation_run.run(name, [case for case in cases() if name in case.kills])
    assert outcome.answers, f"no case claims to kill {name}"
    assert outcome.acted, f"{name} did nothing"
    spared = {
        case: answer
        for case, answer in outcome.answers.items()
        if answer.status is not ClientCaseStatus.FAILED
    }
    assert not spared, f"{name} lives"


def test_a_case_names_mutants_that_there_are() -> None:
    unknown = {case.id: set(case.kills) - set(MUTANTS) for case in cases() if set(case.kills) - set(MUTANTS)}
    assert not unknown


def test_the_table_is_that_of_these_mutants(request: pytest.FixtureRequest) -> None:
    claims = {name: sorted(case.id for case in cases() if name in case.kills) for name in MUTANTS}
    wanted = HEAD + mutation_run.table(MUTANTS, claims.__getitem__)
    if request.config.getoption("--write-mutants"):
        TABLE.write_text(wanted, encoding="utf-8")
    assert TABLE.read_text(encoding="utf-8") == wanted, "write it again: --write-mutants"
