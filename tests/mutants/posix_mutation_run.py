"""Run the posix suite on mutant file systems: on each mutant, the cases that name it.

The agent runs the cases of :mod:`body_cases` as on a client, in a mount of :mod:`fuse_mount`. Rules of the
count:

- A case kills a mutant that it names (``kills=``) if it fails on it and passes on the correct file system.
- A case that ends in any other way (its process exits, it hangs) kills no mutant.
- A case that does not kill a mutant that it names runs on it once more, alone. A kill in the second attempt
  is a warning (:func:`mutation_run.warn_of_second_attempts`).
"""

import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from body_cases import BodyCase
from fuse_mount import mounted
from mutation_run import Attempt
from posix_mutants import MUTANTS

from storagetest.hosts.local import LocalHost
from storagetest.runner.client_cases import ClientCaseResult, ClientCaseStatus, run_cases

HONEST = ("fuse_passthrough:PassThrough", "fuse_locks:Locking")
"""The kernel keeps the locks of the first, the second keeps them itself."""
EACH = 20.0
"""Seconds that a case may take."""
CONCURRENCY = 2
"""Mutants that are tried at the same time."""


def run_on(files: str, cases: Sequence[BodyCase]) -> dict[str, ClientCaseResult]:
    """Run ``cases`` on one file system, ``module:class``; return their answers by id."""
    with tempfile.TemporaryDirectory(prefix="storagetest-posix-") as place:
        below, at = Path(place, "below"), Path(place, "at")
        below.mkdir(mode=0o755)
        at.mkdir()
        Path(place).chmod(0o755)
        with mounted(files, below, at), LocalHost("here") as here:
            answers = run_cases(here, [case.call for case in cases], path=str(at), timeout=EACH)
    return {answer.id: _judged(answer) for answer in answers}


def _judged(answer: ClientCaseResult) -> ClientCaseResult:
    """Return the answer as the plugin reports it: a case that left files which break a rule has failed."""
    if answer.status is not ClientCaseStatus.PASSED or not answer.faults:
        return answer
    return replace(answer, status=ClientCaseStatus.FAILED, message=str(answer.faults))


def run_all(cases: Sequence[BodyCase], mutants: Iterable[str]) -> dict[str, list[Attempt]]:
    """Run each of ``mutants`` before the cases that name it, a few at the same time."""
    wanted = {name: [case for case in cases if name in case.kills] for name in mutants}
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        runs = {name: pool.submit(_attempts, name, killers) for name, killers in wanted.items() if killers}
        return {name: run.result() for name, run in runs.items()}


def _attempts(mutant: str, killers: Sequence[BodyCase]) -> list[Attempt]:
    """Run ``killers`` on ``mutant``, and once more each that does not kill it."""
    answers = run_on(MUTANTS[mutant].files, killers)
    attempts = [_attempt(mutant, answers[case.id]) for case in killers]
    for at, case in enumerate(killers):
        if not attempts[at].kills:
            again = run_on(MUTANTS[mutant].files, [case])[case.id]
            attempts[at] = replace(_attempt(mutant, again), repeated=True)
    return attempts


def _attempt(mutant: str, answer: ClientCaseResult) -> Attempt:
    return Attempt(
        mutant, answer.id, answer.status.value, acted=True, message=answer.message, seconds=answer.seconds
    )
