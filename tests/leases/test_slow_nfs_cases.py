"""The `slow` cases of NFS on NFS-Ganesha on loopback, whose lease and grace period are short.

The cases wait and compute little, and each restart concerns a whole server: so many processes run them, each
on a server of its own.
"""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ganesha
import pytest
from child_pytest import run_pytest

ROOT = Path(__file__).parents[2]
SECONDS = 8
"""Lease and grace period. Claims about operations in the grace period hold for the length of a lease."""
KEPT = ("passed", "observed", "known", "skipped")
pytestmark = pytest.mark.skipif(not ganesha.is_installed(), reason="NFS-Ganesha is not installed")


def run(suite: str, version: str, shard: str, where: Path) -> Sequence[dict[str, Any]]:
    """Run one part of the slow cases of a suite on a server of its own; return the records of the cases.

    A run that ended in another way than by its cases fails here; the cases that failed are the caller's.
    """
    where.mkdir()
    with ganesha.ganesha(lease=SECONDS, grace=SECONDS) as server:
        target = {
            "protocol": "nfs",
            "version": version,
            "address": "127.0.0.1",
            "port": server.nfs,
            "export": ganesha.EXPORT,
            "implementation": {"name": "nfs-ganesha", "version": "4.3"},  # that of Debian 12
            "deadline": "60s",
            "server": "here",
            "controls": {"restart": list(server.restart)},
        }
        if version == "3":
            target |= {"mount_port": server.mount, "lock_port": server.lock, "status_port": server.status[1]}
        machines = {"here": {"transport": "local"}}
        document = {"version": 1, "clients": machines, "servers": machines, "targets": {"nas": target}}
        (where / "targets.yaml").write_text(json.dumps(document))
        options = ["-q", "--tb=short", "-m", "slow", "-p", "shard", "-p", "no:xdist", "-p", "no:randomly"]
        options += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
        options += ["--st-targets", str(where / "targets.yaml"), "--st-cases", str(where / "cases.jsonl")]
        options += ["--st-results", str(where / "results.jsonl")]
        path = os.pathsep.join([str(ROOT / "tests" / "kits"), os.environ.get("PYTHONPATH", "")])
        environment = {"SHARD": shard, "PYTHONPATH": path}
        done = run_pytest([*options, str(ROOT / "suites" / "conformance" / suite)], where, environment)
    output = done.stdout[-6000:] + done.stderr[-2000:]
    cases = where / "cases.jsonl"
    records = [json.loads(line) for line in cases.read_text().splitlines()] if cases.exists() else []
    ends = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    if any(one["outcome"] not in KEPT for one in records):
        ends.add(pytest.ExitCode.TESTS_FAILED)
    assert done.returncode in ends, output
    return records


@pytest.mark.parametrize(
    ("suite", "version", "least", "servers"), [("nfs4", "4.2", 90, 10), ("nfs3", "3", 8, 4)]
)
def test_a_sound_server_fails_no_slow_case(
    tmp_path: Path, suite: str, version: str, least: int, servers: int
) -> None:
    with ThreadPoolExecutor(servers) as pool:
        parts = [
            pool.submit(run, suite, version, f"{number}/{servers}", tmp_path / str(number))
            for number in range(servers)
        ]
        records = [record for part in parts for record in part.result()]
    bad = [f"{one['id']} {one['outcome']}: {one['message']}" for one in records if one["outcome"] not in KEPT]
    assert not bad, "\n".join(bad)
    skipped = {one["message"] for one in records if one["outcome"] == "skipped"}
    ids = {one["id"] for one in records}
    assert len(records) == len(ids) >= least, skipped
    assert any("RECLAIM" in one["id"] and one["outcome"] == "passed" for one in records), skipped
