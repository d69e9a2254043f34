"""The start barrier's release: what runs at which priority."""

import os
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from storagetest.agent.commands import start_barrier
from storagetest.agent.op_log import now


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Release a barrier, and return the scheduling policies while it waits for the instant, and after."""
    seen: list[int] = []
    monkeypatch.setattr(start_barrier, "sleep_until", lambda _: seen.append(os.sched_getscheduler(0)))
    server = start_barrier._BarrierServer(str(tmp_path), Mock())
    server._schedule(now())
    server._release()
    server.stop()
    return [*seen, os.sched_getscheduler(0)]


def may_be_real_time() -> bool:
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, *before)
    return True


@pytest.mark.skipif(not may_be_real_time(), reason="real-time priority needs CAP_SYS_NICE")
def test_a_barrier_preempts_loads_until_it_has_released_its_own(policies):
    assert policies == [os.SCHED_FIFO, os.SCHED_FIFO, os.SCHED_OTHER]


@pytest.mark.skipif(not may_be_real_time(), reason="real-time priority needs CAP_SYS_NICE")
def test_a_load_has_real_time_priority_at_its_start_only(tmp_path, monkeypatch):
    seen: list[int] = []
    with subprocess.Popen(["sleep", "60"]) as load:
        monkeypatch.setattr(
            start_barrier, "sleep_until", lambda _: seen.append(os.sched_getscheduler(load.pid))
        )
        server = start_barrier._BarrierServer(str(tmp_path), Mock())
        server._fifos.parents.add((load.pid, start_barrier._start_ticks(load.pid)))
        server._schedule(now())
        server._release()
        server.stop()
        after = os.sched_getscheduler(load.pid)
        load.kill()
    real_time = os.SCHED_RR | os.SCHED_RESET_ON_FORK
    assert seen == [os.SCHED_OTHER, real_time, real_time]
    assert after == os.SCHED_OTHER


@pytest.fixture
def no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", Mock(side_effect=PermissionError))


@pytest.mark.usefixtures("no_permission")
def test_without_the_permission_it_releases_at_its_own_priority(policies):
    assert policies == [os.SCHED_OTHER] * 3
