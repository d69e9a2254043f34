"""The cases of a suite whose body runs on a client, collected by a pytest process of its own.

This module is the plugin of that pytest. ``posix_claims.toml`` has the marks of cases whose id comes from a
table: under ``kills`` the mutants of an id, under ``no_mutant_reason`` why the ids that a glob matches kill
none.
"""

import json
import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from child_pytest import run_pytest

from storagetest.runner.client_cases import ClientCase

ROOT = Path(__file__).parents[2]
_CLAIMS = Path(__file__).with_name("posix_claims.toml")
_COLLECT = "CLIENT_CASES"


@dataclass(frozen=True, slots=True)
class BodyCase:
    """A case whose body runs on a client, and the mutants that it claims to kill."""

    id: str
    level: str
    kills: tuple[str, ...]
    no_mutant_reason: str
    call: ClientCase


def collected(suite: str, target: Mapping[str, str] | None = None) -> list[BodyCase]:
    """Return a suite's cases for ``target``, by default a directory."""
    with tempfile.TemporaryDirectory() as place:
        targets, found = Path(place, "targets.yaml"), Path(place, "cases.jsonl")
        document = {
            "version": 1,
            "clients": {"here": {"transport": "local"}},
            "targets": {"target": target or {"protocol": "local", "path": place}},
        }
        targets.write_text(json.dumps(document), encoding="utf-8")
        argv = ["--collect-only", "-q", "-p", "body_cases"]
        argv += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
        argv += ["--st-targets", str(targets), str(ROOT / "suites" / "conformance" / suite)]
        here = Path(__file__).parent
        path = os.pathsep.join([str(here), str(here.parent / "kits"), os.environ.get("PYTHONPATH", "")])
        done = run_pytest(argv, ROOT, {_COLLECT: str(found), "PYTHONPATH": path})
        if done.returncode:
            output = f"{done.stdout[-3000:]}{done.stderr[-1000:]}"
            raise RuntimeError(f"pytest ended with {done.returncode}:\n{output}")
        lines = found.read_text(encoding="utf-8").splitlines()
    return [_case(**json.loads(line)) for line in lines]


def _case(
    id: str,  # noqa: A002  # the record's word
    level: str,
    kills: list[str],
    no_mutant_reason: str,
    call: dict[str, Any],
) -> BodyCase:
    named = tuple(dict.fromkeys([*kills, *claims()["kills"].get(id, ())]))
    reasons = [why for glob, why in claims()["no_mutant_reason"].items() if fnmatchcase(id, glob)]
    reason = no_mutant_reason or ("" if named else next(iter(reasons), ""))
    return BodyCase(
        id, level, named, reason, ClientCase(**{**call, "id": id, "module": Path(call["module"])})
    )


@cache
def claims() -> dict[str, dict[str, Any]]:
    """Return the marks in ``posix_claims.toml``."""
    return tomllib.loads(_CLAIMS.read_text(encoding="utf-8"))


# The rest runs inside pytest, as a plugin.


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the cases to the file that :func:`collected` reads."""
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
                "call": {**asdict(call), "module": str(call.module)},
            }
            file.write(json.dumps(entry) + "\n")
