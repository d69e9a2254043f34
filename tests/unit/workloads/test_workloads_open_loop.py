"""The open loop: when requests are due, and who is charged with a stall."""

import math
import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from measured_loads import measured

from storagetest.agent.commands.loads.open_loop import plan
from storagetest.errors import WorkloadError
from storagetest.protocols.base import Attachment
from storagetest.workloads._agent.result import AgentResult
from storagetest.workloads.base import LoadSize
from storagetest.workloads.open_loop import OpenLoop

LOAD = OpenLoop()
SCALE = LoadSize(size=4 << 20, ramp=0.0, runtime=1.0)


def test_evenly_spaced_requests_are_evenly_spaced():
    assert list(plan(4, 1.0, "linear", 1)) == [0, 250_000_000, 500_000_000, 750_000_000]


def test_random_ones_are_as_many_in_their_order_and_their_gaps_are_exponential():
    moments = plan(1000, 20.0, "poisson", 7)
    assert len(moments) == 20_000
    assert list(moments) == sorted(moments)
    assert moments[0] >= 0
    assert moments[-1] < 20e9
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert statistics.mean(gaps) == pytest.approx(1e6, rel=0.02)
    assert statistics.stdev(gaps) == pytest.approx(1e6, rel=0.05)  # as large as the mean
    assert sum(gap > 1e6 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), rel=0.05)


def test_the_same_seed_is_the_same_plan_and_each_repeat_has_its_own():
    assert plan(100, 1.0, "poisson", 1) == plan(100, 1.0, "poisson", 1) != plan(100, 1.0, "poisson", 2)


@pytest.mark.parametrize("process", ["poisson", "linear"])
def test_rate_is_reached_and_service_differs_from_response(directory: Attachment, process: str):
    options = {"rate": 100, "process": process, "read_percent": 50, "workers": 4, "direct": False}
    sample = measured(LOAD, directory, options, SCALE)
    assert set(sample.values) == set(LOAD.metrics)
    assert sample.operations["service"].count == sample.operations["response"].count == 100
    assert sample.values["response_mean"] >= sample.values["service_mean"]
    (file,) = Path(directory.path).iterdir()
    assert file.stat().st_size == SCALE.size


def test_each_request_is_made_once_however_many_workers_race_for_it(directory: Attachment):
    """A request that is taken twice makes one more. A loaded machine may not reach the end of the plan."""
    options = {"rate": 20_000, "workers": 8, "direct": False, "block_size": "512B"}
    whole = 0
    for _ in range(20):
        sample = measured(LOAD, directory, options, LoadSize(size=1 << 20, ramp=0.0, runtime=0.1))
        assert sample.operations["response"].count <= 2000
        whole += sample.operations["response"].count == 2000
        if whole == 3:
            return
    raise AssertionError(f"{whole} of 20 loads made all requests in time")


def test_a_stall_is_charged_to_every_request_behind_it(directory: Attachment):
    """One worker is asked for 80 GiB/s, which no memory gives: each request waits for all before it."""
    slow = {"rate": 20_000, "workers": 1, "direct": False, "block_size": "4MiB"}
    sample = measured(LOAD, directory, slow, LoadSize(size=8 << 20, ramp=0.0, runtime=0.2))
    response, service = (sample.operations[name].percentile(0.5) for name in ("response", "service"))
    assert response > 5 * service
    (why,) = sample.invalid
    assert "1 workers reached" in why
    assert "under 99% of the requested rate" in why


def answer(made: list[int], last: list[float], planned: int = 100) -> AgentResult:
    workers = [{"made": one, "last": at} for one, at in zip(made, last, strict=True)]
    return AgentResult({}, extra={"planned": planned, "workers": workers})


@pytest.mark.parametrize(
    ("made", "last", "reached"),
    [
        ([50, 50], [0.98, 0.99], 1.0),
        ([50, 50], [0.98, 1.005], 100 / 100.5),
        ([50, 50], [0.98, 2.0], 0.5),
        ([50, 40], [0.98, 2.0], 0.45),
        ([100, 0], [0.99, 0.0], 1.0),
    ],
)
def test_what_was_reached_of_the_rate(made, last, reached):
    options = LOAD.Options.model_validate({"rate": 100})
    found = answer(made, last)
    assert LOAD._achieved(found, options) == pytest.approx(reached)
    assert bool(LOAD.invalid(found, options)) == (reached < 0.99)


def test_a_rate_of_less_than_one_request_is_refused(directory: Attachment):
    with pytest.raises(WorkloadError, match="not even one"):
        LOAD.request(directory, LOAD.Options.model_validate({"rate": 0.1}), SCALE)
