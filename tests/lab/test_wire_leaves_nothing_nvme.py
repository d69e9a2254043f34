"""Cases on the wire leave no connection and no controller on the lab's nvmet, whatever became of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from attach_helpers import RecordingHost

from storagetest.lab import Lab
from storagetest.lab.services import nvmet
from storagetest.polling import wait_until
from storagetest.wire.nvme_tcp.session import ControllerSession, SubsystemEndpoint

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
NQN = "nqn.2026-11.org.storagetest:lab1"
RELEASED = 15.0
"""Time in seconds for nvmet to release the controllers of disconnected hosts."""


def port_of(lab: Lab) -> int:
    """Return the forwarded port of nvmet."""
    return next(host.ports["nvme-tcp"] for host in lab.status().hosts if "nvme-tcp" in host.ports)


@pytest.fixture(scope="module")
def outcome(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run the modules that connect and disconnect in every way; return pytest's output."""
    where = tmp_path_factory.mktemp("wire")
    target = {
        "protocol": "nvme-tcp",
        "address": f"appliance.{lab.name}",
        "wire": f"127.0.0.1:{port_of(lab)}",
        "nqn": NQN,
        "erase": nvmet.wwid(1),
    }
    document = {"version": 1, "clients": {"here": {"transport": "local"}}, "targets": {"nvmet": target}}
    (where / "targets.yaml").write_text(json.dumps(document), encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-m", "not slow"]
    argv += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "--st-targets"]
    argv += [str(where / "targets.yaml"), "--st-cases", str(where / "cases.jsonl")]
    argv += ["--st-results", str(where / "results.jsonl")]
    suite = ROOT / "suites" / "conformance" / "nvme_tcp"
    argv += [str(suite / name) for name in ("test_fatal_errors.py", "test_fabrics.py", "test_transfers.py")]
    done = subprocess.run(argv, cwd=where, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def connections(appliance: RecordingHost) -> list[str]:
    """Return the TCP connections to nvmet that are not closed, as the appliance sees them."""
    done = appliance.run(["ss", "-Htn", "state", "connected", "sport", "=", ":4420"], deadline=30.0)
    return [line for line in done.stdout.splitlines() if "TIME-WAIT" not in line]


def test_no_connection_is_left(outcome: str, appliance: RecordingHost) -> None:
    wait_until(lambda: not connections(appliance), RELEASED, "every connection to nvmet to be closed")


def test_no_controller_is_left(outcome: str, lab: Lab, appliance: RecordingHost) -> None:
    # nvmet gives a new controller the lowest number that is free: 1, if it has none.
    def first() -> bool:
        with ControllerSession.connect(SubsystemEndpoint("127.0.0.1", port_of(lab), NQN)) as session:
            return session.cntlid == 1

    wait_until(first, RELEASED, "nvmet to have no controller of an earlier case")


def test_kernel_reports_no_nvmet_error(outcome: str, appliance: RecordingHost) -> None:
    messages = appliance.run(["dmesg", "--level=emerg,alert,crit"], deadline=30.0).stdout
    assert "nvmet" not in messages, messages


def test_cases_ran(outcome: str) -> None:
    assert " passed" in outcome, outcome[-400:]
