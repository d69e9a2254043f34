"""The suite of two clients on file systems that break a promise: one pytest, each mutant before its killers.

This module is the plugin of that pytest. In the place of two clients stand two hands on this machine, in a
mount of :mod:`fuse_mount`, or in one each. Nothing crosses a wire here, so ``wire`` proves nothing and lets
all pass.

- Every case is run on the honest file systems: one mount that keeps locks; and, but for the cases that
  lock, a mount for each client.
- A case that names a mutant (``kills=``) is run on it, and kills it if it fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from fuse_mount import mounted
from mutation_run import ROOT, Attempt, Outcomes
from shared_mutants import MUTANTS

from storagetest.hosts import LocalHost
from storagetest.plugin.conformance.cases import case_of
from storagetest.plugin.fixtures.two_clients import ClientSide, SyscallSessionPool, shared_case_directory

__all__ = ["run"]

SUITE = ROOT / "suites" / "conformance" / "shared"
TOGETHER, APART = "fuse_locks:Locking", "fuse_passthrough:PassThrough"
_OUT, _ONLY = "SHARED_BENCH_OUT", "SHARED_BENCH_ONLY"
_RECORD = "storagetest_case"
_PATIENCE = 1.5
_LONGEST = 900


def run(only: Sequence[str] | None = None) -> Outcomes:
    """Run the honest cases and the mutants, or ``only`` these mutants."""
    with tempfile.TemporaryDirectory(prefix="storagetest-shared-") as place:
        out = Path(place, "out")
        paths = [str(Path(__file__).parent), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        more = {_OUT: str(out), _ONLY: "" if only is None else " ".join(only), "PYTHONPATH": ":".join(paths)}
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "shared_mutation_run", "-p", "no:cacheprovider"]
        argv += ["--rootdir", place, "-c", os.devnull, "--import-mode=importlib", str(SUITE)]
        done = subprocess.run(
            argv, cwd=place, env={**os.environ, **more}, capture_output=True, text=True, timeout=_LONGEST,
            check=False,
        )  # fmt: skip
        if not out.exists():
            raise AssertionError(done.stdout[-4000:] + done.stderr[-4000:])
        said = json.loads(out.read_text())
    attempts: dict[str, list[Attempt]] = {}
    for one in said["attempts"]:
        attempts.setdefault(one["mutant"], []).append(Attempt(**one))
    return Outcomes(said["honest"], attempts)


# What follows runs inside pytest, as a plugin.


def pytest_configure(config: pytest.Config) -> None:
    if _OUT in os.environ:
        # Registered after the project's own plugin, so that its fixtures are the ones that count.
        config.pluginmanager.register(_Bench(), "shared-bench")


class _Bench:
    def __init__(self) -> None:
        self._keeper = SyscallSessionPool()
        self._roots = ("", "")
        self._honest: list[dict[str, Any]] = []
        self._attempts: list[dict[str, Any]] = []

    @pytest.fixture
    def sides(self, request: pytest.FixtureRequest) -> Iterator[tuple[ClientSide, ClientSide]]:
        with self._pair(request) as pair:
            yield pair

    @pytest.fixture
    def sides_of_one_data(self, request: pytest.FixtureRequest) -> Iterator[tuple[ClientSide, ClientSide]]:
        with self._pair(request) as pair:
            yield pair

    @contextmanager
    def _pair(self, request: pytest.FixtureRequest) -> Iterator[tuple[ClientSide, ClientSide]]:
        a, b = (self._keeper.hand(LocalHost(name)) for name in ("a", "b"))
        case = request.node.name.replace("/", "-")[:80]
        places = (f"{self._roots[0]}/{case}", f"{self._roots[1]}/{case}")
        with shared_case_directory((a, b), places):
            yield ClientSide(a, places[0]), ClientSide(b, places[1])

    @pytest.fixture
    def cut_off(self) -> Any:
        pytest.skip("both hands are on this machine: neither can be cut off")

    @pytest.fixture
    def wire(self) -> Any:
        return lambda _hand, _sort: nullcontext()

    @pytest.fixture
    def patience(self) -> float:
        return _PATIENCE

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        only = os.environ[_ONLY].split()
        cases = {item: case for item in session.items if (case := case_of(item)) is not None}
        if not only:
            self._run_honest(cases)
        for name in only or [name for name in MUTANTS if any(name in case.kills for case in cases.values())]:
            one = MUTANTS[name]
            with self._mounted(one.files, apart=one.apart):
                for item, case in cases.items():
                    if name in case.kills:
                        record = self._run(item)
                        self._attempts.append(
                            {
                                "mutant": name,
                                "case": case.id,
                                "outcome": record["outcome"],
                                "acted": True,
                                "message": record["message"][:300],
                                "seconds": record["seconds"],
                            }
                        )
        self._keeper.close()
        Path(os.environ[_OUT]).write_text(json.dumps({"honest": self._honest, "attempts": self._attempts}))
        return True

    def _run_honest(self, cases: dict[pytest.Item, Any]) -> None:
        for files, apart in ((TOGETHER, False), (APART, True)):
            with self._mounted(files, apart=apart):
                for item in cases:
                    if not (apart and _locks(item)):
                        self._honest.append({**self._run(item), "target": "apart" if apart else "together"})

    @contextmanager
    def _mounted(self, files: str, *, apart: bool) -> Iterator[None]:
        with ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="storagetest-shared-")))
            (place / "below").mkdir()
            for name in ("a", "b") if apart else ("a",):
                (place / name).mkdir()
                stack.enter_context(mounted(files, place / "below", place / name))
            stack.callback(self._keeper.close)  # nobody works in the mounts when they go
            self._roots = (str(place / "a"), str(place / ("b" if apart else "a")))
            yield

    @staticmethod
    def _run(item: pytest.Item) -> dict[str, Any]:
        reports = runtestprotocol(item, log=False, nextitem=None)
        records = [getattr(report, _RECORD) for report in reports if hasattr(report, _RECORD)]
        teardown = [str(report.longrepr) for report in reports if report.when == "teardown" and report.failed]
        found: dict[str, Any] = records[-1] if records else {"outcome": "error", "message": "no record"}
        return {**found, "message": found.get("message", "") + "".join(teardown)[-300:]}


def _locks(item: pytest.Item) -> bool:
    """Whether a case locks: its source says so. Two mounts have a table of locks each."""
    source = Path(item.path).read_text(encoding="utf-8")
    body = source[source.index(f"def {item.originalname}(") :]  # type: ignore[attr-defined]  # a function's
    return "lock" in body.split("\n@pytest", 1)[0]
