"""Curves: levels of one run, and families of runs."""

from __future__ import annotations

from storagetest.measure.histogram import Histogram
from storagetest.measure.load_curves import curves, parameter_sweeps
from storagetest.measure.run import METRICS, Better, Metric, Run, Sample
from storagetest.measure.unit import Unit


def run(values: dict[str, float], metrics=METRICS, **more) -> Run:
    asked = {
        "case": "t.py::t", "workload": "w", "target": "t", "variant": "v", "protocol": "nfs", "client": "c",
        "parameters": {}, "negotiated": {}, "started": 0.0,
    }  # fmt: skip
    samples = tuple(
        Sample(values, 1.0, 1000, operations={"threads_4": Histogram.of([1e-3] * 200)}) for _ in range(2)
    )
    return Run(**{**asked, "samples": samples, "metrics": metrics, **more})


def metric(name: str, quantile: float | None = None, operation: str | None = None) -> Metric:
    return Metric(name, Unit.PER_SECOND, Better.HIGHER, quantile, operation)


def test_levels_are_read_off_the_metrics_names():
    names = ("threads_4_iops", "threads_16_iops", "threads_1_iops", "iops_at_peak")
    (found,) = curves(run(dict.fromkeys(names, 1.0), {name: metric(name) for name in names}))
    assert found.name == "threads"
    assert [level.at for level in found.levels] == [1, 4, 16]
    assert found.levels[0].figures["iops"][1].value == 1.0


def test_a_percentile_of_too_few_ios_is_no_point():
    found = [metric(f"threads_4_p{percent}", percent / 100, "threads_4") for percent in (50, 99)]
    metrics = {each.name: each for each in (*found, metric("threads_8_iops"))}
    (found,) = curves(run(dict.fromkeys(metrics, 1.0), metrics))
    assert set(found.levels[0].figures) == {"p50"}


def test_one_level_is_no_curve():
    assert curves(run({"threads_4_iops": 1.0}, {"threads_4_iops": metric("threads_4_iops")})) == []
    assert curves(run({"iops": 1.0})) == []


def test_runs_that_differ_in_one_number_are_a_family():
    runs = [
        run({"iops": float(size)}, parameters={"block_size": size, "direction": way, "direct": True})
        for way in ("read", "write")
        for size in (4096, 1024, 65536)
    ]
    found = parameter_sweeps(runs)
    assert [one.parameter for one in found] == ["block_size"] * 2
    assert [one.fixed["direction"] for one in found] == ["read", "write"]
    assert [at for at, _ in found[0].runs] == [1024, 4096, 65536]


def test_two_values_and_other_variants_are_none():
    runs = [run({"iops": 1.0}, parameters={"depth": depth}, variant=v) for depth in (1, 2) for v in "ab"]
    assert parameter_sweeps(runs) == []
