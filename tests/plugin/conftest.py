"""Fixtures that run pytest on a targets file with two local directories, with and without real fio.

Such a pytest runs in this process, which takes 0.2 s; in a process of its own it takes 3 s. With ``-n`` only
its workers are processes. :func:`process_state` restores the state that pytester does not.
"""

import importlib
import json
import pkgutil
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from output_files import case_outcomes

from storagetest.registry import get_registry

TARGETS = """\
version: 1
clients:
  here: {transport: local}
targets:
  disk: {protocol: local, path: DIRECTORY/disk, clients: [here]}
  other: {protocol: local, path: DIRECTORY/other, clients: [here]}
"""
PROFILES = """\
profiles:
  tiny: {size: 1MiB, ramp: 0, runtime: 200ms, repeats: 3, max_repeats: 3, sample_interval: 0}
"""
FAKE_METRICS_PROFILES = PROFILES.replace("200ms", "10ms").replace("max_repeats: 3", "max_repeats: 10")

SUITE = """\
def test_writes(measure):
    run = measure("small-random-write", direct=False, engine="psync", queue_depth=1)
    assert run.samples[0].values["iops"] > 0
"""
FAKE_METRICS_SUITE = "def test_metrics(measure): measure('fake-metrics')\n"

REGISTRIES = ("protocols", "workloads", "counters", "external")
IMPORTED_AT_FIRST_USE = (*REGISTRIES, "hosts", "plugin", "report", "runner", "search", "verdict", "wire")

KITS = Path(__file__).parents[1] / "kits"
RunPytest = Callable[..., pytest.RunResult]
RunOnTarget = Callable[..., tuple[pytest.RunResult, dict[str, str]]]


@pytest.fixture(scope="session")
def all_modules() -> None:
    """Import all modules that a run may import.

    pytester removes modules that the inner run imports, and numpy cannot be imported twice.
    """
    importlib.import_module("scipy.stats")
    for name in IMPORTED_AT_FIRST_USE:
        package = importlib.import_module(f"storagetest.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


@pytest.fixture(autouse=True)
def process_state(all_modules: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Isolate runs in this process: registries, lock files, bytecode files, and variables of xdist."""
    with pytest.MonkeyPatch.context() as patch:
        for name in REGISTRIES:
            registry = get_registry(f"storagetest.{name}")
            patch.setattr(registry, "_entries", dict(registry.all()))
        locks = tmp_path_factory.mktemp("locks")
        patch.setattr("storagetest.runner.locks.lock_directory", lambda: locks)
        patch.setattr(sys, "dont_write_bytecode", True)  # two suites of one size within a second
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)  # disables pytest-benchmark
        yield


@pytest.fixture
def run_inner(pytester: pytest.Pytester) -> RunPytest:
    """Return a function that runs pytest in this process; with ``-n`` only with the plugins that it needs."""

    def run(*arguments: str) -> pytest.RunResult:
        with pytest.MonkeyPatch.context() as patch:
            if "-n" in arguments:
                patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
                arguments = ("-p", "xdist", "-p", "storagetest", *arguments)
            return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run


@pytest.fixture
def run_on_target(run_inner: RunPytest, pytester: pytest.Pytester) -> RunOnTarget:
    """Return a function that runs files of suites/conformance on ``target``, which listens on this machine.

    It returns pytest's result, and the outcomes of the cases by their ids.
    """

    def run(target: Mapping[str, Any], *arguments: str) -> tuple[pytest.RunResult, dict[str, str]]:
        disk = {"address": "127.0.0.1", "deadline": "2s", "clients": ["here"], **target}
        targets = {"version": 1, "clients": {"here": {"transport": "local"}}, "targets": {"disk": disk}}
        path = pytester.path / "targets.yaml"
        path.write_text(json.dumps(targets), encoding="utf-8")
        options = ("--rootdir", str(pytester.path), "--import-mode=importlib", "--st-targets", str(path))
        return run_inner(*options, *arguments), case_outcomes(pytester.path)

    return run


@pytest.fixture
def run_pytest(run_inner: RunPytest, pytester: pytest.Pytester) -> RunPytest:
    """Return a function that writes targets.yaml and test_suite.py and runs pytest on them in this process.

    ``DIRECTORY`` in ``targets`` is the current directory. ``more`` is appended to it.
    """

    def run(
        *arguments: str, suite: str = SUITE, targets: str = TARGETS, profiles: str = PROFILES, more: str = ""
    ) -> pytest.RunResult:
        for name in ("disk", "other"):
            (pytester.path / name).mkdir(exist_ok=True)
        text = targets.replace("DIRECTORY", str(pytester.path))
        text += ("" if "profiles:" in text else profiles) + more
        (pytester.path / "targets.yaml").write_text(text, encoding="utf-8")
        pytester.makepyfile(test_suite=suite)
        return run_inner("--st-profile", "tiny", *arguments)

    return run


@pytest.fixture
def run_with_fake_metrics(run_pytest: RunPytest, pytester: pytest.Pytester) -> RunPytest:
    """Return a function that runs pytest on two targets whose IOPS are ``disk`` and ``other``."""

    def run(
        *arguments: str,
        suite: str = FAKE_METRICS_SUITE,
        profiles: str = FAKE_METRICS_PROFILES,
        disk: float = 1000,
        other: float = 1000,
        noise: float = 0,
        **more: str,
    ) -> pytest.RunResult:
        (pytester.path / "disk.metrics").write_text(f"{disk} {noise}")
        (pytester.path / "other.metrics").write_text(f"{other} 0")
        pytester.makeconftest(f"import sys\nsys.path.insert(0, {str(KITS)!r})\nimport fake_metrics\n")
        return run_pytest(*arguments, suite=suite, profiles=profiles, **more)

    return run


@pytest.fixture
def fio() -> Path:
    """Skip unless fio is installed; script/setup contains its package."""
    path = shutil.which("fio")
    if path is None:
        pytest.skip("fio is not installed on this machine")
    return Path(path)
