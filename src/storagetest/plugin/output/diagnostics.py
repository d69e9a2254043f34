"""Add labels, measured values and failure diagnostics to Allure's report and to JUnit's properties.

Allure receives them while the case runs, because it stores its state in that process. Diagnostics require
commands on the client, so they are collected only for a case that failed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

import pytest

from storagetest.config import Variant
from storagetest.errors import StoragetestError
from storagetest.plugin.items import parameters_of
from storagetest.plugin.measure.client_selection import item_machines
from storagetest.plugin.output.record_transport import records_of
from storagetest.plugin.run_state import KEY, RunState
from storagetest.report.allure import reporter as allure
from storagetest.report.junit import properties
from storagetest.runner.multi_client import format_client_names

_FIXED = ("[XPASS(strict)]", "the case passes: remove ")  # of pytest, and of known_issues.py
_DMESG = ["dmesg", "--ctime"]
_DMESG_LINES = 200
_DEADLINE = 20.0


def set_allure_identity(item: pytest.Item, variant: Variant, state: RunState) -> None:
    """Set the labels and parameters of a case before it runs."""
    from storagetest.plugin.conformance.cases import case_of  # noqa: PLC0415  # pytest loads it, as a plugin

    case = case_of(item)
    allure.identify(
        epic=state.protocol(variant).title,
        feature=item.path.stem.removeprefix("test_").replace("_", "-"),
        variant=variant.id,
        requirement=case.section if case else "",
        client=format_client_names([machine.name for machine in item_machines(item, variant, state)]),
        parameters={
            name: value for name, value in parameters_of(item).items() if name not in {"variant", "clients"}
        },
    )


class Diagnostics:
    """Attaches to each case its measured values and, if it failed, diagnostics of its client."""

    def __init__(self, config: pytest.Config) -> None:
        self._state = config.stash[KEY]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach them, after all other hooks have determined the outcome."""
        report = yield
        variant = self._state.variant_of(item)
        if variant is not None and (report.when == "call" or report.failed):
            self._attach(item, report, variant)
        return report

    def _attach(self, item: pytest.Item, report: pytest.TestReport, variant: Variant) -> None:
        records = records_of(item)
        for record in records:
            item.user_properties.extend(properties(record))
        if isinstance(report.longrepr, str) and report.longrepr.startswith(_FIXED):
            allure.on_fixed()
        allure.on_case(records, _diagnosis(variant, self._state) if report.failed else {})


def _diagnosis(variant: Variant, state: RunState) -> Mapping[str, str]:
    """Collect diagnostics of the client, or the error if that fails."""
    client = state.host(state.client(variant))
    texts: dict[str, str] = {}
    try:
        done = client.run(_DMESG, deadline=_DEADLINE, check=False)
        last = "\n".join(done.stdout.splitlines()[-_DMESG_LINES:])
        texts["dmesg"] = last if done.ok else done.describe()
        texts.update(state.protocol(variant).collect_diagnostics(client, variant.options))
    except StoragetestError as error:
        texts["diagnosis"] = f"could not be collected: {error}"
    return texts
