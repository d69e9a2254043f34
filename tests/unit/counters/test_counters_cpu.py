"""Processor time from /proc/stat."""

from __future__ import annotations

from pathlib import Path

import pytest

from storagetest.counters.cpu import CpuUsage, cpu_usage, parse_stat

BEFORE = """\
cpu  100 10 50 1000 40 5 5 0 20 0
cpu0 60 5 30 500 20 3 3 0 10 0
cpu1 40 5 20 500 20 2 2 0 10 0
intr 12345 0 0
"""


def after(cpu0: str, cpu1: str) -> str:
    whole = " ".join(str(int(a) + int(b)) for a, b in zip(cpu0.split(), cpu1.split(), strict=True))
    return f"cpu  {whole}\ncpu0 {cpu0}\ncpu1 {cpu1}\n"


def test_the_share_is_of_all_cores_and_the_busiest_is_named():
    # cpu0: 90 busy of 100 ticks; cpu1: 10 busy of 100.
    now = after("110 5 60 505 25 5 11 0 10 0", "50 5 20 585 25 2 2 0 10 0")
    assert cpu_usage(parse_stat(BEFORE), parse_stat(now)) == CpuUsage(share=0.5, busiest_core=0.9, cores=2)


def test_stolen_time_is_busy_and_waiting_for_io_is_not():
    idle = "cpu  0 0 0 0 0 0 0 0 0 0\n"
    assert cpu_usage(parse_stat(idle), parse_stat("cpu  0 0 0 60 0 0 0 40 0 0\n")) == CpuUsage(0.4, 0.4, 0)
    assert cpu_usage(parse_stat(idle), parse_stat("cpu  0 0 0 60 40 0 0 0 0 0\n")) == CpuUsage(0.0, 0.0, 0)


def test_guests_are_not_counted_twice():
    zero, now = parse_stat("cpu  0 0 0 0 0 0 0 0 0 0"), parse_stat("cpu  50 0 0 50 0 0 0 0 50 0")
    assert cpu_usage(zero, now) == CpuUsage(0.5, 0.5, 0)


def test_old_kernels_have_fewer_columns():
    assert cpu_usage(parse_stat("cpu 0 0 0 0 0"), parse_stat("cpu 1 0 0 3 0")) == CpuUsage(0.25, 0.25, 0)


def test_no_time_passed_no_share():
    assert cpu_usage(parse_stat(BEFORE), parse_stat(BEFORE)) is None


def test_what_runs_backwards_stays_a_share():
    zero, now = parse_stat("cpu 10 0 0 100 50"), parse_stat("cpu 20 0 0 105 40")
    assert 0 <= cpu_usage(zero, now).share <= 1


def test_a_core_that_came_meanwhile_has_no_share():
    zero = parse_stat("cpu 0 0 0 0 0\ncpu0 0 0 0 0 0")
    now = parse_stat("cpu 1 0 0 3 0\ncpu0 1 0 0 3 0\ncpu1 9 0 0 0 0")
    assert cpu_usage(zero, now) == CpuUsage(0.25, 0.25, 2)


@pytest.mark.parametrize("text", ["", "intr 1", "cpu0 1 2 3 4 5", "cpu 1 2", "cpu a b c d e"])
def test_what_is_no_proc_stat_is_refused(text):
    with pytest.raises(ValueError):
        parse_stat(text)


def test_this_machines_own_can_be_read():
    times = parse_stat(Path("/proc/stat").read_text())
    assert times.cores
    assert 0 < times.busy < times.total
