"""Run a conformance suite against mutants of a target, and tell which case killed which."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from proxy import Mutant, Proxy, Rewrite, Splitter

from storagetest.report.coverage import CaseOutcome, CaseRecord, load

__all__ = ["Suite", "honest", "killers", "table"]

ROOT = Path(__file__).parents[2]
SOFT_DEADLINE = 0.5
"""Seconds that a case waits for an answer that a mutant holds back."""


@dataclass(frozen=True)
class Suite:
    """A suite under ``suites/conformance``, a real target, and how to speak of it in YAML.

    ``serve`` starts a target on loopback and yields its port; each mutant has one of its own, so that what
    one leaves behind is no other's.
    """

    directory: str
    serve: Callable[[], AbstractContextManager[int]]
    splitter: Callable[[bool], Splitter]
    target: Mapping[str, Any]
    options: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, makes: Mapping[str, Callable[[], Rewrite]], where: Path, *, deadline: float
    ) -> list[CaseRecord]:
        """Run the cases on one proxy for each of ``makes``; return what became of them."""
        with ExitStack() as stack:
            targets = {}
            for name, make in makes.items():
                port = stack.enter_context(self.serve())
                proxy = stack.enter_context(Proxy("127.0.0.1", port, self.splitter, make))
                wire = {"address": "127.0.0.1", "port": proxy.port, "deadline": deadline}
                targets[name] = {**self.target, **wire}
            where.mkdir(parents=True, exist_ok=True)
            document = {"version": 1, "clients": {"here": {"transport": "local"}}, "targets": targets}
            (where / "targets.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
            done = subprocess.run(
                self._argv(where), capture_output=True, text=True, env=self._env(), timeout=600, check=False
            )
        if done.returncode not in (0, 1):
            raise RuntimeError(
                f"pytest ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
            )
        (where / "output.txt").write_text(done.stdout, encoding="utf-8")
        return load(where / "cases.jsonl")

    def _argv(self, where: Path) -> list[str]:
        return [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--tb=line",
                "-p",
                "mutant_selection",
                "-p",
                "no:cacheprovider",
            ),
            *("-p", "no:randomly", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")),
            *("--st-targets", str(where / "targets.yaml"), "--st-cases", str(where / "cases.jsonl")),
            *("--st-results", str(where / "results.jsonl"), *self.options),
            str(ROOT / "suites" / "conformance" / self.directory),
        ]

    @staticmethod
    def _env() -> dict[str, str]:
        paths = [str(Path(__file__).parent), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def honest(suite: Suite, where: Path) -> list[CaseRecord]:
    """Run every case through a proxy that changes nothing."""
    return suite.run({"honest": Rewrite}, where, deadline=10.0)


def killers(suite: Suite, mutants: Iterable[Mutant], where: Path) -> dict[str, list[CaseRecord]]:
    """Return for each mutant the records of the cases that killed it."""
    chosen = list(mutants)
    records = suite.run({one.name: one.make for one in chosen}, where, deadline=SOFT_DEADLINE)
    return {
        one.name: [
            r
            for r in records
            if r.target == one.name and r.outcome in (CaseOutcome.FAILED, CaseOutcome.WARNED)
        ]
        for one in chosen
    }


def table(mutants: Mapping[str, Mutant], killed: Mapping[str, list[CaseRecord]]) -> str:
    """Return the table of mutants as Markdown."""
    lines = ["| mutant | section | what is broken | killed by |", "| --- | --- | --- | --- |"]
    for name, mutant in sorted(mutants.items()):
        cases = sorted({record.id for record in killed.get(name, [])})
        shown = ", ".join(cases[:4]) + (f" and {len(cases) - 4} more" if len(cases) > 4 else "")
        lines.append(f"| {name} | {mutant.section} | {mutant.description} | {shown or '**nobody**'} |")
    return "\n".join(lines) + "\n"
