"""What LPA and OACS announce is there: log pages, and Directive Receive (Base 5.2.13.2.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import LogPage, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.13.2.1")]

ALL_NAMESPACES = 0xFFFFFFFF
LENGTH = 512
"""Bytes that are read: the SMART log page (5.2.12.1.3), the head of a telemetry log page (5.2.12.1.8)."""

SELF_TEST_LOG, TELEMETRY_LOG = 0x06, 0x07
"""Log pages (5.2.12.1.7, 5.2.12.1.8). A read of the second without Create changes nothing."""

DIRECTIVE_RECEIVE = 0x1A
RETURN_PARAMETERS = 1
"""DOPER of the directive Identify, whose DTYPE is 0 (8.1.9)."""


def _smart(nsid: int) -> Command:
    return admin.get_log_page(LogPage.SMART, LENGTH, nsid=nsid)


def _self_test(_: int) -> Command:
    return admin.get_log_page(SELF_TEST_LOG, LENGTH, nsid=ALL_NAMESPACES)


def _telemetry(_: int) -> Command:
    return admin.get_log_page(TELEMETRY_LOG, LENGTH, nsid=ALL_NAMESPACES)


def _directives(nsid: int) -> Command:
    return Command(DIRECTIVE_RECEIVE, nsid=nsid, cdw10=LENGTH // 4 - 1, cdw11=RETURN_PARAMETERS)


ANNOUNCED: dict[str, tuple[str, int, Callable[[int], Command], str]] = {
    "LPA-SMART": ("lpa", 0, _smart, "the SMART log page of a namespace"),
    "LPA-TELEMETRY": ("lpa", 3, _telemetry, "the head of the Telemetry Host-Initiated log page"),
    "OACS-SELF-TEST": ("oacs", 4, _self_test, "the Device Self-test log page"),
    "OACS-DIRECTIVES": ("oacs", 5, _directives, "Directive Receive (Return Parameters)"),
}
"""By name: the field and the bit that announce a command, the command of a namespace, and what it returns."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVA-ANNOUNCED-{name}", kills=(f"announced-{name.lower()}",)))
    for name in ANNOUNCED
])  # fmt: skip
def test_what_a_controller_announces_is_there(session: ControllerSession, name: str) -> None:
    """Each command only reads."""
    field, bit, make, what = ANNOUNCED[name]
    if not session.controller[field] >> bit & 1:
        pytest.skip(f"{field.upper()} bit {bit}: {what} is not supported")
    done = session.admin.run(make(session.namespaces()[0]), reads=LENGTH)
    assert done.ok, (
        f"5.2.13.2.1: {field.upper()} bit {bit} announces {what}, which ends with {status_name(done.status)}"
    )
