"""Run the posix suite on mutant file systems: on each mutant, the cases that name it.

The agent runs the cases as on a client, in a mount of :mod:`fuse_mount`. One separate pytest process collects
the cases (:func:`collected`). Rules of the count:

- A case kills a mutant that it names (``kills=``) if it fails on it and passes on the correct file system.
- A case that ends in any other way (its process exits, it hangs) kills no mutant.
- ``posix_claims.toml`` has the marks of cases whose id comes from a table:
  under ``kills`` the mutants of an id, under ``no_mutant_reason`` why the ids that a glob matches kill none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fuse_mount import mounted
from mutation_run import Attempt
from posix_mutants import MUTANTS

from storagetest.hosts.local import LocalHost
from storagetest.runner.client_cases import ClientCase, ClientCaseResult, run_cases

__all__ = ["HONEST", "BodyCase", "collected", "run_all", "run_on"]

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "suites" / "conformance"
HONEST = ("fuse_passthrough:PassThrough", "fuse_locks:Locking")
"""The kernel keeps the locks of the first, the second keeps them itself."""
EACH = 20.0
"""Seconds that a case may take."""
CONCURRENCY = 2
"""Mutants that are tried at the same time."""
CLAIMS = Path(__file__).with_name("posix_claims.toml")
_COLLECT = "CLIENT_CASES"


@dataclass(frozen=True, slots=True)
class BodyCase:
    """A case whose body runs on a client."""

    id: str
    level: str
    kills: tuple[str, ...]
    no_mutant_reason: str
    call: ClientCase


def run_on(files: str, cases: Sequence[BodyCase]) -> dict[str, ClientCaseResult]:
    """Run ``cases`` on one file system, ``module:class``; return their answers by id."""
    with tempfile.TemporaryDirectory(prefix="storagetest-posix-") as place:
        below, at = Path(place, "below"), Path(place, "at")
        below.mkdir(mode=0o755)
        at.mkdir()
        Path(place).chmod(0o755)
        with mounted(files, below, at), LocalHost("here") as here:
            answers = run_cases(here, [case.call for case in cases], path=str(at), timeout=EACH)
    return {answer.id: answer for answer in answers}


def run_all(cases: Sequence[BodyCase], mutants: Iterable[str]) -> dict[str, list[Attempt]]:
    """Run each of ``mutants`` before the cases that name it, a few at the same time."""
    wanted = {name: [case for case in cases if name in case.kills] for name in mutants}
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        runs = {
            name: pool.submit(run_on, MUTANTS[name].files, killers)
            for name, killers in wanted.items()
            if killers
        }
        answers = {name: run.result() for name, run in runs.items()}
    return {
        name: [_attempt(name, answers[name][case.id]) for case in killers]
        for name, killers in wanted.items()
        if killers
    }


def _attempt(mutant: str, answer: ClientCaseResult) -> Attempt:
    return Attempt(
        mutant, answer.id, answer.status.value, acted=True, message=answer.message, seconds=answer.seconds
    )


def collected(suite: str) -> list[BodyCase]:
    """Return a suite's cases whose body runs on a client; pytest collects them, in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        targets, found = Path(place, "targets.yaml"), Path(place, "cases.jsonl")
        document = {
            "version": 1,
            "clients": {"here": {"transport": "local"}},
            "targets": {"mount": {"protocol": "local", "path": place}},
        }
        targets.write_text(json.dumps(document), encoding="utf-8")
        argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "posix_mutation_run"]
        argv += ["-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
        argv += ["--st-targets", str(targets), str(SUITES / suite)]
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {_COLLECT: str(found), "PYTHONPATH": path}
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            output = f"{done.stdout[-3000:]}{done.stderr[-1000:]}"
            raise RuntimeError(f"pytest ended with {done.returncode}:\n{output}")
        lines = found.read_text(encoding="utf-8").splitlines()
    return [_case(json.loads(line)) for line in lines]


def _case(entry: dict[str, Any]) -> BodyCase:
    claims = _claims()
    kills = tuple(dict.fromkeys([*entry["kills"], *claims["kills"].get(entry["id"], ())]))
    reasons = [why for glob, why in claims["no_mutant_reason"].items() if fnmatchcase(entry["id"], glob)]
    no_mutant_reason = entry["no_mutant_reason"] or ("" if kills else next(iter(reasons), ""))
    call = ClientCase(
        entry["id"], Path(entry["module"]), entry["function"], entry["arguments"], entry["fixture"]
    )
    return BodyCase(entry["id"], entry["level"], kills, no_mutant_reason, call)


@cache
def _claims() -> dict[str, dict[str, Any]]:
    return tomllib.loads(CLAIMS.read_text(encoding="utf-8"))


# What follows runs inside pytest, as a plugin.


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write down the cases, where :func:`collected` asks for them."""
    name = os.environ.get(_COLLECT)
    if name is None:
        return
    from storagetest.plugin.conformance.cases import case_of
    from storagetest.plugin.conformance.client_cases import client_call

    with Path(name).open("w", encoding="utf-8") as file:
        for item in session.items:
            case, call = case_of(item), client_call(item)
            if case is None or call is None:
                continue
            entry = {
                "id": case.id,
                "level": case.level.value,
                "kills": case.kills,
                "no_mutant_reason": case.no_mutant_reason,
            }
            entry |= {"module": str(call.module), "function": call.function, "fixture": call.fixture}
            file.write(json.dumps({**entry, "arguments": dict(call.arguments)}) + "\n")
