"""A round of pytest-benchmark, by the metrics of the run."""

from __future__ import annotations

import pytest

from storagetest.measure.run import METRICS, Better, Metric, Run, Sample, Unit
from storagetest.plugin.output.pytest_benchmark import rounds_of

CUSTOM_METRICS = {
    "boot": Metric("boot", Unit.SECONDS, Better.LOWER),
    "rate": Metric("rate", Unit.BYTES_PER_SECOND, Better.HIGHER),
    "share": Metric("share", Unit.RATIO, Better.LOWER),
}


def run_of(metrics: dict[str, Metric], *values: dict[str, float]) -> Run:
    samples = tuple(Sample(each, 1.0, 1) for each in values)
    return Run("case", "load", "t", "t-v", "local", "c", {}, {}, samples, 0.0, metrics=metrics)


@pytest.mark.parametrize(
    ("run", "description", "rounds"),
    [
        (
            run_of(METRICS, {"iops": 4.0, "p99": 1.0}, {"iops": 5.0}),
            "seconds per operation, 1/iops",
            [0.25, 0.2],
        ),
        (run_of(CUSTOM_METRICS, {"boot": 3.0, "rate": 5.0}, {"boot": 4.0}), "seconds, boot", [3.0, 4.0]),
        (run_of(CUSTOM_METRICS, {"rate": 2.0**21}), "seconds per MiB, from rate", [0.5]),
        (run_of(METRICS, {"iops": 0.0, "p99": 2.0}), "seconds, p99", [2.0]),
        (run_of(CUSTOM_METRICS, {"share": 0.5}), "", []),
        (run_of(CUSTOM_METRICS), "", []),
    ],
)
def test_a_round_is_the_seconds_of_an_operation_or_a_duration(run, description, rounds):
    assert rounds_of(run) == (description, rounds)
