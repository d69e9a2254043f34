"""The hooks of a run that uses storagetest; each delegates to another module of the plugin.

:mod:`storagetest.plugin.hooks` is loaded by every pytest, and calls :func:`start` at the first use.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from typing import Any

import pytest

from storagetest.errors import ConfigError, StoragetestError
from storagetest.files import check_writable
from storagetest.plugin import large_operands, outcomes, parametrize, session_verdict
from storagetest.plugin.case_guard import CaseGuard
from storagetest.plugin.conformance import (
    cases,
    client_cases,
    crash_watch,
    known_issues,
    leftovers,
    odd_data,
    repeated_faults,
)
from storagetest.plugin.external import absence, mount_item
from storagetest.plugin.fixtures import deprecated
from storagetest.plugin.items import is_worker, item_variant, release_variant
from storagetest.plugin.mark_check import check_marks
from storagetest.plugin.measure import running
from storagetest.plugin.options import given_files
from storagetest.plugin.output import diagnostics, junit, markdown, pytest_benchmark, record_transport
from storagetest.plugin.output.results import Reporting
from storagetest.plugin.progress.plugin import ProgressPlugin, forward_progress
from storagetest.plugin.run_state import KEY, RunState

_MODULES = (sys.modules[__name__], cases, known_issues, leftovers, mount_item, client_cases, odd_data)
"""The modules with hooks. pluggy calls hooks of one name in reverse order of registration."""


def start(config: pytest.Config) -> None:
    """Read the targets file and register all hooks. An invalid file ends the run with exit code 4."""
    plugins = config.pluginmanager
    for module in _MODULES:
        plugins.register(module, module.__name__)
    for part in (markdown, junit, known_issues, cases, repeated_faults, absence, large_operands):
        part.register(config)
    try:
        config.stash[KEY] = RunState(config)
        if is_worker(config):
            forward_progress(config)
        else:
            _check_given_files(config)
            plugins.register(Reporting(config), "storagetest-reporting")
            plugins.register(session_verdict.SessionVerdict(config), "storagetest-session-verdict")
            plugins.register(ProgressPlugin(config), "storagetest-progress")
            _ensure_lab(config)
        _use_lab(config)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    plugins.register(CaseGuard(config), "storagetest-guard")
    plugins.register(diagnostics.Diagnostics(config), "storagetest-diagnostics")
    if pytest_benchmark.is_active(config):
        plugins.register(pytest_benchmark.Bridge(config), "storagetest-benchmark")
    if plugins.hasplugin("xdist"):  # its own "dsession" is registered only after this
        plugins.register(_Scheduling(), "storagetest-scheduling")


def _check_given_files(config: pytest.Config) -> None:
    """Raise :class:`ConfigError` if a file that an option names cannot be written, before the first case."""
    for option, path in given_files(config).items():
        try:
            check_writable(path)
        except OSError as error:
            raise ConfigError(f"{option} {path}: it cannot be written: {error.strerror}") from None


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the targets file of the run, and the secrets in it."""
    state = config.stash.get(KEY, None)
    if state is None or state.loaded is None:
        return []
    return [f"targets: {state.path}", *_config_warnings(config)]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close every connection."""
    state = config.stash.get(KEY, None)
    if state is not None:  # None: the targets file is invalid
        state.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without Python's garbage collector, which takes a quarter of the time of 30,000 cases.

    It does not look at the items afterwards either, as they stay until the process ends: its last collections
    would take another fifth.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if enabled:
            gc.freeze()
            gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip items whose variant lacks a capability; with ``--st-sample`` keep a sample."""
    deprecated.warn_of_old_names(items)
    state = config.stash[KEY]
    if state.targets_needed and state.loaded is None:
        try:
            _ = state.config
        except ConfigError as error:
            raise pytest.UsageError(str(error)) from None
    check_marks(state, config, items)
    dropped = parametrize.apply_needs_and_sample(state, items, sample=config.option.st_sample)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in set(dropped)]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the gates that share the suite's error probability."""
    state = session.config.stash[KEY]
    if state.loaded is not None:
        items = [(item, item_variant(item)) for item in session.items]
        state.thresholds.count(items, state.loaded, state.variants)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Classify the outcome, and put the case's records on its reports."""
    report = yield
    outcomes.classify(item, report, call)
    session_verdict.note_case(report, item)
    if report.when != "setup":
        record_transport.attach_records(report, item)
    state = item.config.stash[KEY]
    variant = state.variant_of(item)
    if variant is not None:
        crash_watch.after_phase(item, report, call.excinfo.value if call.excinfo else None, variant, state)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Allow the measurements of the case."""
    running.begin_case(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """After the fixtures: refuse a running measurement, and gates without one; release a variant."""
    result = yield
    try:
        running.end_case(item)
        session_verdict.refuse_unused_gates(item)
    finally:
        release_variant(item, nextitem)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Show errors of the call phase as ERROR, and :class:`Invalid` as INVALID."""
    return outcomes.status_word(report)


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the reasons of the INVALID cases before the table of measured values.

    Secrets in plain text and insecure options are named again: with ``-q`` there is no header.
    """
    outcomes.print_invalid(terminalreporter)
    for text in _config_warnings(terminalreporter.config):
        terminalreporter.write_line(text, red=True, bold=True)


def _config_warnings(config: pytest.Config) -> list[str]:
    state = config.stash.get(KEY, None)
    if state is None or state.loaded is None:
        return []
    return [f"WARNING {text}" for text in state.loaded.warnings()]


class _Scheduling:
    """The hooks of xdist. Registered only if xdist is: pluggy rejects hooks without a specification."""

    @pytest.hookimpl
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> object:  # noqa: ANN401  # xdist's
        """Keep a target on one worker, unless ``--dist`` selects another distribution."""
        from storagetest.plugin.xdist_scheduler import TargetScheduling  # noqa: PLC0415  # needs xdist

        return TargetScheduling(config, log) if config.option.dist == "load" else None

    @pytest.hookimpl
    def pytest_configure_node(self, node: Any) -> None:  # noqa: ANN401  # xdist's
        """Send the worker the value of ``--dist`` and the address of the progress socket."""
        node.workerinput[client_cases.DIST] = node.config.option.dist
        progress: ProgressPlugin = node.config.pluginmanager.getplugin("storagetest-progress")
        progress.configure_node(node.workerinput)

    @pytest.hookimpl
    def pytest_testnodedown(self, node: Any) -> None:  # noqa: ANN401  # xdist's
        """Remove the progress of a worker that ended."""
        progress: ProgressPlugin = node.config.pluginmanager.getplugin("storagetest-progress")
        progress.node_down(node.gateway.id)


def _ensure_lab(config: pytest.Config) -> None:
    name: str | None = config.option.st_lab
    if name is None or config.option.collectonly:
        return
    from storagetest.lab import Lab  # noqa: PLC0415  # imported only with --st-lab

    try:
        if Lab.find(name) is None:
            Lab.up(name=name, owner=os.getpid(), progress=lambda line: print(line, file=sys.stderr))  # noqa: T201
    except StoragetestError as error:
        raise pytest.UsageError(f"--st-lab: {error}") from None


def _use_lab(config: pytest.Config) -> None:
    name: str | None = config.option.st_lab
    if name is not None:
        from storagetest.lab.paths import lab_dir  # noqa: PLC0415  # as above

        config.stash[KEY].use_lab(lab_dir(name) / "targets.yaml")
