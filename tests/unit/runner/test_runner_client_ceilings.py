"""The ceiling of a load on a client, and who was the bottleneck, with a real fio."""

from __future__ import annotations

import shutil

import pytest

from storagetest.errors import HostError, WorkloadError
from storagetest.hosts.local import LocalHost
from storagetest.runner import CaseInfo, PrefillCache, run_case
from storagetest.runner.client_ceilings import ClientCeilings
from storagetest.workloads.base import LoadSize
from storagetest.workloads.small_random_read import SmallRandomRead


def test_it_is_measured_once_a_client_and_load():
    ceilings, asked = ClientCeilings(), []

    def measure() -> float:
        asked.append(1)
        return 7.0

    with LocalHost("a") as a, LocalHost("b") as b:
        assert [ceilings.get(*each, measure) for each in ((a, "x"), (a, "x"), (a, "y"), (b, "x"))] == [
            7.0
        ] * 4
    assert len(asked) == 3


def test_a_generator_that_cannot_leaves_it_unknown_and_a_lost_client_is_an_error():
    def cannot() -> float:
        raise WorkloadError("no null engine")

    def lost() -> float:
        raise HostError("gone")

    with LocalHost("a") as host:
        assert ClientCeilings().get(host, "x", cannot) is None
        with pytest.raises(HostError):
            ClientCeilings().get(host, "x", lost)


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed here")
def test_run_names_its_limiter(attachment):
    load = SmallRandomRead()
    run, _ = run_case(
        load,
        load.Options.model_validate({"queue_depth": 1}),
        attachment,
        LoadSize(size=2 << 20, ramp=0.1, runtime=0.4),
        repeats=1,
        max_repeats=1,
        gates=[],
        case=CaseInfo("c", load.name, "t", "v", "local", "here"),
        fills=PrefillCache(),
    )
    (sample,) = run.samples
    assert sample.utilisation.rate == pytest.approx(sample.values["iops"])
    assert sample.utilisation.ceiling > 0
    assert 0 < (sample.utilisation.busiest_core or 0) <= 1
    assert "without a target" in run.limited_by.reason
