"""Run a suite of two clients on mutant file systems: a few pytest processes, because the cases mostly wait.

This module is the plugin of those pytests. Two syscall sessions on this machine replace the clients: both in
one mount of :mod:`fuse_mount`, or each in its own. ``crossed_wire`` accepts all, because no request crosses a
network.

- Every case runs on correct file systems: on one mount with locks, and on a mount per client whose locks are
  kept below both.
- With ``coherent`` the correct file systems are lustre_server, with the controls of a server and an lfs, and
  lustre_groups, with group locks.
- A case that names a mutant (``kills=``) runs on it, and kills it if the case fails.
- Cases with a ``no_mutant_reason``, and those of one client, do not run.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from child_pytest import run_pytest
from fuse_mount import mounted
from lustre_server import CONTROL
from lustre_stripe_mutants import MUTANTS
from mutation_run import ROOT, Outcomes, by_mutant

from storagetest.concurrency import run_concurrently
from storagetest.hosts import LocalHost
from storagetest.plugin.conformance.cases import case_of
from storagetest.plugin.fixtures.two_clients import ClientSide, SyscallSessionPool, shared_case_directory
from storagetest.runner.syscall_session import SyscallSession

SUITE = ROOT / "suites" / "conformance" / "shared"
SHARED_MOUNT, SEPARATE_MOUNTS = "fuse_locks:Locking", "fuse_locks_below:LocksBelow"
HONEST = {"together": (SHARED_MOUNT, False, ""), "apart": (SEPARATE_MOUNTS, True, "")}
"""The correct file systems: files, whether each client has its own mount, and a pattern of the modules."""
COHERENT = {
    "together": ("lustre_server:Server", False, "test_(?!group_locks)"),
    "group locks": ("lustre_groups:Groups", False, "test_group_locks"),
}
"""The same, if two mounts are not correct."""
PROCESSES = 8
"""Each takes an equal part of the cases on the correct file systems, and of the mutants (chosen)."""
_OUT, _PART, _TOGETHER = "SHARED_MUTATION_OUT", "SHARED_MUTATION_PART", "SHARED_MUTATION_TOGETHER"
_RECORD = "storagetest_case"
_VISIBILITY_TIMEOUT = 1.5
_HONEST_RECOVERY_TIMEOUT, _RECOVERY_TIMEOUT = 60.0, 3.0
"""On a correct file system it is a bound on a hang; some mutants never recover."""


def run(suite: Path = SUITE, *, processes: int = PROCESSES, coherent: bool = False) -> Outcomes:
    """Run the cases of ``suite`` on the correct file systems and on all mutants.

    With ``coherent`` only one mount is correct: two have caches that no lock keeps coherent.
    """
    parts = [(suite, f"{part}/{processes}", coherent) for part in range(processes)]
    results = run_concurrently(_run_part, parts, name="mutants")
    attempts = [attempt for result in results for attempt in result["attempts"]]
    return Outcomes([case for result in results for case in result["honest"]], by_mutant(attempts))


def _run_part(arguments: tuple[Path, str, bool]) -> dict[str, list[dict[str, Any]]]:
    suite, part, coherent = arguments
    with tempfile.TemporaryDirectory(prefix="storagetest-shared-") as directory:
        out = Path(directory, "out")
        here = Path(__file__).parent
        paths = [here, here.parent / "kits", ROOT / "src", *filter(None, [os.environ.get("PYTHONPATH")])]
        more = {
            _OUT: str(out),
            _PART: part,
            _TOGETHER: "1" if coherent else "",
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
        }
        argv = ["-q", "-p", "shared_mutation_run", "--st-judge-all", "--rootdir", directory]
        argv += ["-c", os.devnull, "--import-mode=importlib", *map(str, _modules(suite))]
        done = run_pytest(argv, Path(directory), more)
        if not out.exists():
            raise AssertionError(done.stdout[-4000:] + done.stderr[-4000:])
        result: dict[str, list[dict[str, Any]]] = json.loads(out.read_text())
        return result


def _modules(suite: Path) -> list[Path]:
    """Return the modules of two clients alone: one client needs a target."""
    sources = {path: path.read_text() for path in sorted(suite.glob("test_*.py"))}
    return [path for path, text in sources.items() if not re.search("client_dir", text)]


# The rest runs inside pytest, as a plugin.


def pytest_configure(config: pytest.Config) -> None:
    if _OUT in os.environ:
        # Registered after the project's plugin, so that these fixtures override its fixtures.
        config.pluginmanager.register(_LocalClients(), "shared-mutation-run")
        _stand_in_for_lustre()


def _stand_in_for_lustre() -> None:
    """Let sessions run :mod:`lustre_lfs` where a case runs lfs, and pass the number of a group by address.

    lfs is not on this machine. FUSE passes what an ioctl's argument points at, and Lustre's is a number.
    """
    start = SyscallSession.start
    program = str(Path(__file__).with_name("lustre_lfs.py"))

    def translated(call: Any) -> Any:
        name, *arguments = call
        if name == "run_program" and arguments[0][0] == "lfs":
            return (name, [sys.executable, program, *arguments[0][1:]], *arguments[1:])
        if name == "ioctl_number":
            descriptor, request, number = arguments
            return ("ioctl", descriptor, request, number.to_bytes(8, "little"))
        return call

    def started(self: SyscallSession, *calls: Any, **options: Any) -> Any:
        return start(self, *map(translated, calls), **options)

    SyscallSession.start = started  # type: ignore[method-assign]


class _LocalClients:
    def __init__(self) -> None:
        self._sessions = SyscallSessionPool()
        self._roots = ("", "")
        self._recovery_timeout = 0.0
        self._honest: list[dict[str, Any]] = []
        self._attempts: list[dict[str, Any]] = []

    @pytest.fixture
    def client_sides(self, request: pytest.FixtureRequest) -> Iterator[tuple[ClientSide, ClientSide]]:
        with self._pair(request) as pair:
            yield pair

    @pytest.fixture
    def client_sides_same_data(
        self, request: pytest.FixtureRequest
    ) -> Iterator[tuple[ClientSide, ClientSide]]:
        with self._pair(request) as pair:
            yield pair

    @contextmanager
    def _pair(self, request: pytest.FixtureRequest) -> Iterator[tuple[ClientSide, ClientSide]]:
        a, b = (self._sessions.get(LocalHost(name)) for name in ("a", "b"))
        case = request.node.name.replace("/", "-")[:80]
        directories = (f"{self._roots[0]}/{case}", f"{self._roots[1]}/{case}")
        with shared_case_directory((a, b), directories):
            yield ClientSide(a, directories[0]), ClientSide(b, directories[1])

    @pytest.fixture
    def network_cut(self) -> Any:
        pytest.skip("both sessions are on this machine: neither can be isolated")

    @pytest.fixture
    def layout_io(self) -> Any:
        pytest.skip("the file systems here have no layouts")

    @pytest.fixture
    def device_removed(self) -> Any:
        pytest.skip("the file systems here have no device")

    @pytest.fixture
    def crossed_wire(self) -> Any:
        return lambda _session, _kind: nullcontext()

    @pytest.fixture
    def server_inodes(self) -> Any:
        return lambda: True

    @pytest.fixture
    def visibility_timeout(self) -> float:
        return _VISIBILITY_TIMEOUT

    @pytest.fixture
    def recovery_timeout(self) -> float:
        return self._recovery_timeout

    @pytest.fixture
    def server_control(self) -> Any:
        return self._with_fault

    @contextmanager
    def _with_fault(self, capability: str) -> Iterator[None]:
        name = CONTROL.decode() + capability
        os.setxattr(self._roots[0], name, b"1")
        try:
            yield
        finally:
            os.setxattr(self._roots[0], name, b"0")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        cases = {
            item: case
            for item in session.items
            if (case := case_of(item)) is not None and not case.no_mutant_reason
        }
        part, processes = map(int, os.environ[_PART].split("/"))
        self._recovery_timeout = _HONEST_RECOVERY_TIMEOUT
        for name, correct in (COHERENT if os.environ.get(_TOGETHER) else HONEST).items():
            self._run_honest(name, correct, list(cases)[part::processes])
        self._recovery_timeout = _RECOVERY_TIMEOUT
        for name in list(MUTANTS)[part::processes]:
            self._run_mutant(name, cases)
        self._sessions.close()
        Path(os.environ[_OUT]).write_text(json.dumps({"honest": self._honest, "attempts": self._attempts}))
        return True

    def _run_honest(self, name: str, correct: tuple[str, bool, str], cases: Sequence[pytest.Item]) -> None:
        files, apart, modules = correct
        cases = [item for item in cases if re.match(modules, item.path.name)]
        with self._mounted(files, apart=apart):
            for item in cases:
                self._honest.append({**self._run(item), "target": name})

    def _run_mutant(self, name: str, cases: dict[pytest.Item, Any]) -> None:
        killers = {item: case for item, case in cases.items() if name in case.kills}
        if not killers:
            return
        with self._mounted(MUTANTS[name].files, apart=MUTANTS[name].apart):
            for item, case in killers.items():
                record = self._run(item)
                attempt = {"mutant": name, "case": case.id, "acted": True, "outcome": record["outcome"]}
                attempt |= {"message": record["message"][:300], "seconds": record["seconds"]}
                self._attempts.append(attempt)

    @contextmanager
    def _mounted(self, files: str, *, apart: bool) -> Iterator[None]:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="storagetest-shared-")))
            (directory / "below").mkdir()
            for name in ("a", "b") if apart else ("a",):
                (directory / name).mkdir()
                stack.enter_context(mounted(files, directory / "below", directory / name))
            stack.callback(self._sessions.close)  # before the mounts are removed
            self._roots = (str(directory / "a"), str(directory / ("b" if apart else "a")))
            yield

    @staticmethod
    def _run(item: pytest.Item) -> dict[str, Any]:
        reports = runtestprotocol(item, log=False, nextitem=None)
        records = [getattr(report, _RECORD) for report in reports if hasattr(report, _RECORD)]
        teardown = [str(report.longrepr) for report in reports if report.when == "teardown" and report.failed]
        record: dict[str, Any] = records[-1] if records else {"outcome": "error", "message": "no record"}
        return {**record, "message": record.get("message", "") + "".join(teardown)[-300:]}
