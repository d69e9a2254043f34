"""Nodes of a Slurm job as hosts: the choice of the node and the job, and the end of steps."""

from __future__ import annotations

import shlex
import time
from contextlib import ExitStack

import pytest

from storagetest.config.models import HostConfig
from storagetest.errors import DeadlineExceeded, HostError
from storagetest.hosts import SlurmHost
from storagetest.hosts.connect import connect
from storagetest.measure.run import Sample
from storagetest.polling import wait_until
from storagetest.runner.start_barriers import StartBarrier
from storagetest.runner.synchronized_start import run_synchronized
from storagetest.workloads._fio.job import barrier_option


def test_each_node_is_a_separate_host(slurm, slurm_host):
    for number in range(2):
        with SlurmHost(f"client{number}", number, job=slurm.job) as host:
            assert host.run(["printenv", "SLURMD_NODENAME"], deadline=60).stdout == f"n{number}\n"


def test_the_default_job_is_the_current_one(slurm, slurm_host, monkeypatch):
    config = HostConfig("node", "slurm", node=0)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with (
        connect(config) as host,
        pytest.raises(HostError, match="node: no Slurm job: run pytest within"),
    ):
        host.run(["true"], deadline=60)
    monkeypatch.setenv("SLURM_JOB_ID", str(slurm.job))
    with connect(config) as host:
        assert host.run(["printenv", "SLURMD_NODENAME"], deadline=60).stdout == "n0\n"


@pytest.mark.parametrize(("job", "node"), [(999999, 0), (0, 7)])
def test_a_missing_job_or_node_is_a_host_error(slurm, slurm_host, job, node):
    with (
        SlurmHost("client9", node, job=job or slurm.job) as host,
        pytest.raises(HostError, match="client9: no step"),
    ):
        host.run(["true"], deadline=60)


def test_no_step_is_left_after_a_deadline(slurm, slurm_host, marker, running):
    with pytest.raises(DeadlineExceeded):
        slurm_host.run(["sh", "-c", f"sleep 600; : {marker}"], deadline=1)
    assert not running(marker)

    def only_the_job() -> bool:
        steps = slurm.output("squeue", "--steps", "--noheader", "--format=%i").split()
        return all(step.endswith((".extern", ".interactive")) for step in steps)

    wait_until(only_the_job, 60, "the end of all steps", interval=0.2)


def test_loads_on_the_nodes_start_at_the_same_time(slurm, slurm_host):
    with ExitStack() as stack:
        hosts = [stack.enter_context(SlurmHost(f"c{number}", number, job=slurm.job)) for number in range(2)]
        barriers = [stack.enter_context(StartBarrier(host)) for host in hosts]

        def load(barrier: StartBarrier):
            def run(start) -> Sample:
                (option,) = barrier_option(start.directory, 1)
                script = f"sh -c {shlex.quote(option.removeprefix('--exec_prerun='))}; cat /proc/uptime"
                uptime = barrier.host.run(["sh", "-c", script], deadline=60).stdout
                return Sample({}, 0.1, 1, evidence={"up": uptime})

            return run

        runs = run_synchronized(barriers, [load(barrier) for barrier in barriers])
    assert [run.client for run in runs] == ["c0", "c1"]
    assert all(float(run.sample.evidence["up"].split()[0]) >= run.instant - 0.05 for run in runs)
    assert all(abs(run.clock.wall - (time.time() - time.monotonic())) < 5 for run in runs)
