"""The ceiling of a load on a client, and who was the bottleneck, with a real fio."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from measured_loads import needs_fio

from storagetest.errors import HostError, WorkloadError
from storagetest.hosts.local import LocalHost
from storagetest.runner.client_ceilings import ClientCeilings
from storagetest.workloads.base import LoadSize
from storagetest.workloads.small_random_read import SmallRandomRead


def test_it_is_measured_once_a_client_and_load():
    ceilings, measure = ClientCeilings(), Mock(return_value=7.0)
    with LocalHost("a") as a, LocalHost("b") as b:
        found = [ceilings.get(host, load, measure) for host, load in ((a, "x"), (a, "x"), (a, "y"), (b, "x"))]
    assert found == [7.0] * 4
    assert measure.call_count == 3


def test_a_generator_that_cannot_leaves_it_unknown_and_a_lost_client_is_an_error():
    with LocalHost("a") as host:
        assert ClientCeilings().get(host, "x", Mock(side_effect=WorkloadError("no null engine"))) is None
        with pytest.raises(HostError):
            ClientCeilings().get(host, "x", Mock(side_effect=HostError("gone")))


@needs_fio
def test_run_names_its_limiter(measure):
    scale = LoadSize(size=2 << 20, ramp=0.1, runtime=0.4)
    run, _ = measure(SmallRandomRead(), scale, options={"queue_depth": 1}, repeats=1)
    (sample,) = run.samples
    assert sample.utilisation.rate == pytest.approx(sample.values["iops"])
    assert sample.utilisation.ceiling > 0
    assert 0 < (sample.utilisation.busiest_core or 0) <= 1
    assert "without a target" in run.limited_by.reason
