"""The agent's output is parsed to correct numbers or to an error with advice."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storagetest.errors import WorkloadError
from storagetest.workloads._agent.base import _timeline
from storagetest.workloads._agent.result import read_result

OPERATION = {"ops": 3, "total": 4, "bins": {"100": 1, "129": 2}, "bytes": 30, "total_bytes": 40}
PHASE = {
    "seconds": 0.5,
    "span": 0.6,
    "spread": 0.01,
    "tail": 0.09,
    "cpu": 0.8,
    "overlap": True,
    "operations": {"create": OPERATION},
}
CPU = ["cpu 1 0 1 98 0 0 0 0\ncpu0 1 0 1 98 0 0 0 0", "cpu 51 0 1 148 0 0 0 0\ncpu0 51 0 1 148 0 0 0 0"]
VALUE = {"phases": {"create": PHASE}, "cpu": CPU, "files": 4}
GOOD = '{"t":"progress","phase":"create"}\n' + json.dumps({"t": "result", "value": VALUE}) + "\n"


def changed(**members: Any) -> str:
    """The good result with members of its phase (or, ``operation_…``, of its entry) replaced."""
    value = copy.deepcopy(VALUE)
    phase: dict[str, Any] = value["phases"]["create"]  # type: ignore[index]
    for name, member in members.items():
        place = phase["operations"]["create"] if name.startswith("operation_") else phase
        place[name.removeprefix("operation_")] = member
    return json.dumps({"t": "result", "value": value})


def test_the_numbers_are_the_agents():
    answer = read_result(GOOD, "")
    phase = answer.phases["create"]
    assert (phase.rate("create"), phase.bandwidth("create"), phase.cpu) == (6.0, 60.0, 0.8)
    assert phase.operations["create"].latency.bins == ((100, 1), (129, 2))
    assert answer.extra == {"files": 4}
    assert answer.cpu.share == pytest.approx(0.5)


def test_rates_and_percentiles_over_time_are_those_of_each_interval():
    timeline = {"0": {"104": 1, "976": 2}, "2": {"976": 1}}  # in 0.2 s each; the last interval has 0.1 s
    text = changed(
        began=7.0, operation_ops=4, operation_bins={"100": 1, "1004": 3}, operation_timeline=timeline
    )
    series = {one.name: one for one in _timeline(read_result(text, ""), "client", 6.5, 0.2)}
    rate, median = series["create operations"], series["create p50"]
    assert (rate.times, rate.values) == ((0.7, 0.9, 1.0), pytest.approx((15, 0, 10)))
    assert (median.source, median.times, median.values) == ("latency", (0.7,), pytest.approx((976e-9,)))
    assert "create p99" not in series  # an interval with fewer than 100 operations has none


@pytest.mark.parametrize("dirty", [f"Welcome!\n{GOOD}", f"{GOOD}[1]\nbye\n", GOOD.replace("\n", "\r\n")])
def test_what_others_print_does_not_matter(dirty):
    assert read_result(dirty, "noise") == read_result(GOOD, "")


@pytest.mark.parametrize(
    ("stdout", "message"),
    [
        ("", "without a result: it was killed"),
        ('{"t":"progress","phase":"create"}\n', "without a result"),
        (GOOD[: len(GOOD) // 2], "without a result"),
        (GOOD + GOOD, "sent 2 results"),
        ('{"t":"result"}', "cannot be trusted"),
        ('{"t":"result","value":[]}', "cannot be trusted"),
        (changed(seconds=0), "nothing was done"),
        (changed(seconds=0.7), "0.7 s of 0.6 s"),
        (changed(seconds=float("nan")), "seconds is nan"),
        (changed(span=-1), "span is -1"),
        (changed(spread="0"), "spread is '0'"),
        (changed(tail=True), "tail is True"),
        (changed(operations={}), "nothing was done"),
        (changed(operation_ops=0, operation_bins={}), "nothing was done"),
        (changed(operation_ops=2), "2 of 4 operations, 3 latencies"),
        (changed(operation_total=2), "3 of 2 operations"),
        (changed(operation_timeline={"0": {"104": 2}}), "3 operations, 2 in their timeline"),
        (changed(operation_timeline={"0": {"104": -3}}), "not a count"),
        (changed(operation_timeline={"0": 3}), "cannot be trusted"),
        (changed(operation_bytes=50), "50 of 40 B"),
        (changed(operation_bins={"100": 1, "128": 2}), "not a bucket"),
        (changed(operation_ops=3.0), "not a count"),
        (changed(operation_bins=None), "cannot be trusted"),
    ],
)
def test_what_cannot_be_believed_is_an_error(stdout, message):
    with pytest.raises(WorkloadError, match=message):
        read_result(stdout, "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"kind": "os", "errno": "ENOSPC", "op": "create", "path": "/m/f1", "message": "No space left"},
            r"^create /m/f1: No space left \(ENOSPC\)\nthe target is full: free space there",
        ),
        ({"kind": "os", "errno": "EXDEV", "op": "", "path": "", "message": "Odd"}, r"^: Odd \(EXDEV\)$"),
        ({"kind": "python", "message": "3.7"}, "python3 is 3.7, too old: the agent needs 3.9"),
        ({"kind": "deadline", "message": "2 of 2 workers"}, "2 of 2 workers. The target may hang: check"),
        ({"kind": "died", "message": "worker 1 died"}, "^worker 1 died$"),
    ],
)
def test_agent_error_has_advice(line, message):
    with pytest.raises(WorkloadError, match=message):
        read_result(json.dumps({"t": "error", **line}), "")


def test_what_killed_it_is_shown():
    with pytest.raises(WorkloadError, match="it was killed\nKilled"):
        read_result("", "Killed\n")


@settings(deadline=None)
@given(st.integers(0, len(GOOD)), st.integers(1, 300))
def test_a_piece_that_is_missing_never_changes_a_number_unseen(place, length):
    """A digit may go; but then counts and bins contradict each other, or only a time is another."""
    try:
        answer = read_result(GOOD[:place] + GOOD[place + length :], "")
    except WorkloadError:
        return
    for phase in answer.phases.values():
        for entry in phase.operations.values():
            assert entry.ops == entry.latency.count
