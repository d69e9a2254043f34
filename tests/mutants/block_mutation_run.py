"""A mutant of a block device: a file of :mod:`block_files`, mounted over FUSE, under a loop device.

The cases are those of suites/conformance/block whose body runs on a client; they run here as they do there,
by the agent, on the loop device. Attaching is left out: no signature is looked for on a device that lies.

What is made is undone at the end of the ``with``; what a killed run has left (a loop device whose directory
bears the number of a dead process) is undone by the next one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import block_files
import fuse_mount
import pytest

from storagetest.hosts.local import LocalHost
from storagetest.runner.client_cases import ClientCase, ClientCaseResult, ClientCaseStatus, run_cases

__all__ = ["BlockCase", "Outcome", "collected", "loop_over", "run", "table", "why_not"]

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "suites" / "conformance" / "block"
SIZE = 64 << 20
_PREFIX = "storagetest-block-"
_COLLECT = "BLOCK_CASES"
_DEADLINE = 30.0


@dataclass(frozen=True, slots=True)
class BlockCase:
    """A case whose body runs on a client, and the mutants that it claims to kill."""

    id: str
    kills: tuple[str, ...]
    call: ClientCase


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the cases on one disk, by their ids; ``acted`` is whether it broke its promise."""

    answers: dict[str, ClientCaseResult]
    acted: bool

    def failed(self) -> list[str]:
        """Return the ids of the cases that failed."""
        return sorted(
            name for name, answer in self.answers.items() if answer.status is ClientCaseStatus.FAILED
        )


def why_not() -> str | None:
    """Return why no such disk can be had here, or None."""
    if not Path("/dev/loop-control").exists():
        return "there is no /dev/loop-control: the kernel has no loop devices"
    return fuse_mount.why_not()


def run(name: str | None, cases: Sequence[BlockCase]) -> Outcome:
    """Run ``cases`` on the mutant of that name; on an honest disk where it is None."""
    with loop_over(name) as (device, below), LocalHost("here") as here:
        answers = run_cases(here, [case.call for case in cases], path=device, timeout=_DEADLINE)
        acted = (below / block_files.ACTED).exists()
    by_call = {answer.id: answer for answer in answers}
    return Outcome({case.id: by_call[case.call.id] for case in cases}, acted)


@contextmanager
def loop_over(name: str | None) -> Iterator[tuple[str, Path]]:
    """Yield a loop device over a disk, and the directory that the disk's own file is in."""
    _sweep()
    kind = "Disk" if name is None else block_files.MUTANTS[name].__name__
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as place:
        below, at = Path(place, "below"), Path(place, "at")
        below.mkdir()
        at.mkdir()
        with (below / block_files.DISK).open("wb") as disk:
            disk.truncate(SIZE)
        (below / block_files.POWER).touch()
        with fuse_mount.mounted(f"block_files:{kind}", below, at):
            attach = ["losetup", "--find", "--show", "--direct-io=on", str(at / block_files.DISK)]
            device = _run(attach).strip()
            try:
                yield device, below
            finally:
                _run(["losetup", "--detach", device])


def _sweep() -> None:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            path = backing.read_text(encoding="utf-8").strip()
        except OSError:
            continue
        _, found, rest = path.partition(f"/{_PREFIX}")
        if found and not Path("/proc", rest.partition("-")[0]).exists():
            _run(["losetup", "--detach", f"/dev/{backing.parts[3]}"])


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_DEADLINE)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def table(killers: dict[str, list[str]]) -> str:
    """Return the table of mutants as Markdown."""
    lines = ["| mutant | rule | what is broken | killed by |", "| --- | --- | --- | --- |"]
    for name, kind in sorted(block_files.MUTANTS.items()):
        cases = killers.get(name, [])
        shown = ", ".join(cases[:4]) + (f" and {len(cases) - 4} more" if len(cases) > 4 else "")
        lines.append(f"| {name} | {kind.section} | {kind.__doc__} | {shown or '**none**'} |")
    return "\n".join(lines) + "\n"


def collected() -> list[BlockCase]:
    """Return the suite's cases whose body runs on a client; pytest collects them, in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        targets, found = Path(place, "targets.yaml"), Path(place, "cases.jsonl")
        target = {"protocol": "local", "device": "/dev/null", "erase": "nothing"}
        document = {"version": 1, "clients": {"here": {"transport": "local"}}, "targets": {"disk": target}}
        targets.write_text(json.dumps(document), encoding="utf-8")
        argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "block_mutation_run"]
        argv += ["-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
        argv += ["--st-targets", str(targets), str(SUITE)]
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {_COLLECT: str(found), "PYTHONPATH": path}
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise RuntimeError(
                f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
            )
        lines = found.read_text(encoding="utf-8").splitlines()
    return [_case(json.loads(line)) for line in lines]


def _case(entry: dict[str, Any]) -> BlockCase:
    call = ClientCase(
        entry["case"], Path(entry["module"]), entry["function"], entry["arguments"], "block_range"
    )
    return BlockCase(entry["case"], tuple(entry["kills"]), call)


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
            entry = {"case": case.id, "kills": case.kills, "module": str(call.module)}
            entry |= {"function": call.function, "arguments": dict(call.arguments)}
            file.write(json.dumps(entry) + "\n")
