"""The iSCSI suite, tested: every broken rule is noticed by a case that names it, and an honest proxy by none.

The real target is the lab's LIO (``STORAGETEST_LAB`` names another lab than ``default``; one is started where
there is none). Each mutant is a proxy of its own in front of it, and a target of its own in one targets file,
so that one run of pytest does a batch of them. With ``STORAGETEST_TABLES`` set the table is written to docs/.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from iscsi_mutants import MUTANTS
from iscsi_selection import PREFIX
from iscsi_talk import IscsiMutant, honest
from proxy import Proxy

from storagetest.lab import Lab

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BATCH = 24
HONEST = IscsiMutant("honest", "", "nothing is changed", reply=honest)


@dataclass(frozen=True)
class Real:
    """The target behind the proxies: its port, and the options of its targets file by kind."""

    port: int
    options: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def real() -> Iterator[Real]:
    """Return LIO as the lab has it."""
    name = os.environ.get("STORAGETEST_LAB", "default")
    lab = Lab.find(name)
    with contextlib.ExitStack() as stack:
        if lab is None:
            lab = Lab.up("mutants-iscsi", clients=0, owner=os.getpid(), progress=lambda _: None)
            stack.callback(lab.down)
        status = lab.status()
        port = next(host.ports["iscsi"] for host in status.hosts if "iscsi" in host.ports)
        secret = lab.targets_yaml.parent / "chap-password"
        plain = {
            "protocol": "iscsi",
            "address": "127.0.0.1",
            "iqn": "iqn.2026-11.org.storagetest:lab-plain",
            "lun": 2,
            "erase": "naa.600140557057e5700000000000000002",
            "deadline": 3,
        }
        chap = plain | {
            "iqn": "iqn.2026-11.org.storagetest:lab-chap",
            "lun": 0,
            "erase": "naa.600140557057e5700000000000000003",
            "chap": {"username": "storagetest", "password": f"${{file:{secret}}}"},
        }
        yield Real(port, {"plain": plain, "chap": chap})


def run(
    real: Real, mutants: list[IscsiMutant], directory: Path, *, prefix: str = PREFIX
) -> list[dict[str, Any]]:
    """Run the suite through a proxy for each of ``mutants``; return the outcomes of the cases."""
    with contextlib.ExitStack() as stack:
        targets = {}
        for mutant in mutants:
            shared: dict[str, Any] = {}
            proxy = stack.enter_context(
                Proxy(
                    "127.0.0.1",
                    real.port,
                    lambda _from_target: (
                        lambda data: [data]
                    ),  # a talk cuts the stream itself: digests begin late
                    lambda mutant=mutant, shared=shared: mutant.make(shared),  # type: ignore[misc]
                )
            )
            options = real.options[mutant.target]
            if mutant is HONEST:
                options = {**options, "deadline": 10}
            targets[prefix + mutant.name] = {**options, "port": proxy.port}
        file, outcomes = directory / "targets.yaml", directory / "cases.jsonl"
        file.write_text(
            json.dumps({"version": 1, "clients": {"here": {"transport": "local"}}, "targets": targets})
        )
        argv = [sys.executable, "-m", "pytest", str(ROOT / "suites/conformance/iscsi"), "-q", "--tb=no"]
        argv += ["-p", "no:cacheprovider", "-p", "iscsi_selection", "-m", "not slow", "--st-strict"]
        argv += [
            "--st-targets",
            str(file),
            "--st-cases",
            str(outcomes),
            "--st-results",
            str(directory / "r.jsonl"),
        ]
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-2000:]
    return [json.loads(line) for line in outcomes.read_text().splitlines()]


def batches() -> list[list[IscsiMutant]]:
    every = list(MUTANTS.values())
    return [every[at : at + BATCH] for at in range(0, len(every), BATCH)]


@pytest.mark.parametrize("batch", range(len(batches())))
def test_every_mutant_is_killed_by_a_case_that_names_its_rule(real: Real, tmp_path: Path, batch: int) -> None:
    mutants = batches()[batch]
    outcomes = run(real, mutants, tmp_path)
    survivors, rows = [], []
    for mutant in mutants:
        mine = [one for one in outcomes if one["target"] == PREFIX + mutant.name]
        killers = [one["id"] for one in mine if one["outcome"] == "failed"]
        said = ", ".join(f"{one['id']} {one['outcome']}" for one in mine) or "no case names it"
        if not killers:
            survivors.append(f"{mutant.name} ({mutant.section}): {said}")
        rows.append(f"| {mutant.name} | {mutant.section} | {mutant.description} | {', '.join(killers)} |")
    write_rows(batch, rows)
    assert not survivors, "\n".join(survivors)


def test_no_case_fails_because_of_the_proxy(real: Real, tmp_path: Path) -> None:
    outcomes = run(real, [HONEST], tmp_path, prefix="")
    bad = [
        f"{one['id']}: {one['message'][:200]}" for one in outcomes if one["outcome"] in ("failed", "error")
    ]
    strict = [line for line in bad if not any(case in line for case in broken_shoulds(outcomes))]
    assert len(outcomes) > 300
    assert not strict, "\n".join(strict)


def broken_shoulds(outcomes: list[dict[str, Any]]) -> set[str]:
    """SHOULDs that the target itself does not keep: they fail under --st-strict, proxy or not."""
    return {one["id"] for one in outcomes if one["level"] == "SHOULD"}


def test_every_claim_to_kill_names_a_mutant() -> None:
    claimed: set[str] = set()
    for path in (ROOT / "suites/conformance/iscsi").glob("test_*.py"):
        words = path.read_text(encoding="utf-8")
        for piece in words.split("kills=(")[1:]:
            claimed |= {
                word.strip(' "')
                for word in piece.partition(")")[0].split(",")
                if word.strip().startswith('"')
            }
    assert claimed - set(MUTANTS) <= {"key-{key}"}


def write_rows(batch: int, rows: list[str]) -> None:
    """Keep the table of docs/mutants-iscsi.md, batch by batch."""
    if not os.environ.get("STORAGETEST_TABLES"):
        return
    path = ROOT / "docs/mutants-iscsi.md"
    head = [
        "# Mutants: iSCSI",
        "",
        "Each row is a target that breaks one rule (tests/mutants/iscsi_mutants.py), and the cases that notice.",
        "",
        "| mutant | rule | what it does | killed by |",
        "|---|---|---|---|",
    ]
    old = path.read_text(encoding="utf-8").splitlines() if batch and path.exists() else head
    path.write_text("\n".join([*old, *rows]) + "\n", encoding="utf-8")
