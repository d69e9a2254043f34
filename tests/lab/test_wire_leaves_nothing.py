"""A wire suite's cases leave nothing logged in: asked of the appliance, where LIO lists its sessions.

The NVMe half is in test_wire_leaves_nothing_nvme.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from attach_helpers import RecordingHost

from storagetest.lab import Lab
from storagetest.polling import wait_until

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]

SESSIONS = """
for tpg in /sys/kernel/config/target/iscsi/iqn.*/tpgt_*; do
    tr '\\0' '\\n' < "$tpg/dynamic_sessions" | grep -a iqn.
    for acl in "$tpg"/acls/*/info; do
        [ -e "$acl" ] && grep -h InitiatorName "$acl"
    done
done
true
"""

PART = ["test_login.py", "test_chap.py", "test_nop.py", "test_logout.py", "test_task.py", "test_digest.py"]
"""Modules that end sessions in every way there is: logout, close, refusal, reinstatement, digest error."""

STAYS = {"ISC-TMF-23": "a_function_that_is_not_immediate_uses_a_cmd_sn"}
"""Cases after which LIO itself never ends the session (docs/findings/iscsi.md), by their functions' names."""


def sessions(appliance: RecordingHost) -> Counter[str]:
    """Return the initiators that LIO has sessions of."""
    done = appliance.run(["sh", "-c", SESSIONS], deadline=20)
    return Counter(done.stdout.split())


def run(lab: Lab, where: Path, *selected: str) -> str:
    """Run a part of the iSCSI suite on the lab's targets, as a user would; return pytest's output."""
    suite = ROOT / "suites" / "conformance" / "iscsi"
    argv = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not slow"]
    argv += [
        "--rootdir",
        str(ROOT),
        "-c",
        str(ROOT / "pyproject.toml"),
        "--st-targets",
        str(lab.targets_yaml),
    ]
    argv += ["--st-target", "iscsi", "--st-target", "iscsi-chap", "--st-cases", str(where / "cases.jsonl")]
    argv += [
        "--st-results",
        str(where / "results.jsonl"),
        "-k",
        " and ".join(f"not {name}" for name in STAYS.values()),
    ]
    argv += [str(suite / module) for module in selected]
    done = subprocess.run(
        argv, cwd=where, env=dict(os.environ), capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return done.stdout


def test_after_the_iscsi_cases_no_session_is_left(lab: Lab, appliance: RecordingHost, tmp_path: Path) -> None:
    before = sessions(appliance)
    output = run(lab, tmp_path, *PART)
    assert " passed" in output
    wait_until(lambda: not sessions(appliance) - before, 10, "the end of the last sessions")
    assert not sessions(appliance) - before


def test_open_session_is_listed(lab: Lab, appliance: RecordingHost) -> None:
    """`sessions` lists a session that is open, so an empty list is meaningful."""
    from storagetest.wire.iscsi.initiator import Initiator
    from storagetest.wire.tcp import RecordedConnection

    port = next(host.ports["iscsi"] for host in lab.status().hosts if "iscsi" in host.ports)
    name = "iqn.2024-01.org.storagetest:seen"
    with RecordedConnection.connect("127.0.0.1", port, deadline=10) as link:
        stays = Initiator(link, name=name)
        stays.login(target="iqn.2026-11.org.storagetest:lab-plain")
        assert sessions(appliance)[name] == 1
        stays.logout()
    wait_until(lambda: not sessions(appliance)[name], 10, "the end of the session")
