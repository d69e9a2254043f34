"""Small parts of the plugin: the error budget, xdist's scheduler, pytest-benchmark."""

import random
from pathlib import Path

import pytest

from storagetest.measure.run import METRICS, Better, Metric, Run, Sample
from storagetest.measure.unit import Unit
from storagetest.plugin.measure.error_budget import ErrorBudget, max_gates
from storagetest.plugin.output.pytest_benchmark import rounds_of
from storagetest.plugin.xdist_scheduler import divide, is_wire_module, variant_in


def test_foreseen_gates_get_equal_shares_and_one_share_remains():
    budget = ErrorBudget({"a": 2, "b": 1})
    assert [budget.take("a", 2), budget.take("b", 1)] == [4, 4]


def test_unforeseen_gates_get_halves_of_the_last_share():
    budget = ErrorBudget({"a": 1})
    assert [budget.take("a", 1), budget.take("a", 1), budget.take("x", 1)] == [2, 4, 8]


@pytest.mark.parametrize("seed", range(20))
def test_the_shares_never_add_up_to_more_than_one(seed):
    draw = random.Random(seed)
    allotted = {str(i): draw.randrange(4) for i in range(30)}
    budget = ErrorBudget(allotted)
    spent = 0.0
    for _ in range(100):
        gates = draw.randrange(5)
        spent += gates / budget.take(str(draw.randrange(40)), gates) if gates else 0
    assert spent <= 1


def test_each_worker_has_a_last_share_of_its_own():
    assert ErrorBudget({"a": 3}, workers=4).take("a", 3) == 7


@pytest.mark.parametrize(
    ("constants", "expected"),
    [(("stream", "read", 4096), 2), (("stream", "drip"), 7), (("read", None), 5), ((), 5)],
)
def test_max_gates_counts_the_workloads_named_by_a_function(constants, expected):
    most = {"stream": 2, "drip": 5, "idle": 0}
    assert max_gates(constants, most, most.__getitem__) == expected


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


VARIANTS = ["nfs-v4", "nfs-v4-nconnect2", "nfs", "nas-4KiB"]


@pytest.mark.parametrize(
    ("nodeid", "found"),
    [
        ("suites/test_a.py::test_x[nfs-v4-4KiB]", "nfs-v4"),
        ("suites/test_a.py::test_x[4KiB-nfs-v4-nconnect2]", "nfs-v4-nconnect2"),
        ("suites/test_a.py::test_x[nfs]", "nfs"),
        ("suites/test_a.py::test_x[nas-4KiB-4KiB]", "nas-4KiB"),
        ("suites/test_a.py::test_x[other]", None),
        ("suites/test_a.py::test_x", None),
        ("suites/nfs/test_a.py::test_x", None),
    ],
)
def test_the_variant_is_found_among_the_parameters(nodeid: str, found: str | None) -> None:
    assert variant_in(nodeid, VARIANTS) == found


def test_a_module_of_cases_on_the_wire_is_known_by_its_source(tmp_path: Path) -> None:
    suites = Path(__file__).parents[3] / "suites" / "conformance"
    for suite, is_wire in (
        ("nfs3", True),
        ("nfs4", True),
        ("smb2", True),
        ("posix", False),
        ("block", False),
    ):
        modules = sorted((suites / suite).glob("test_*.py"))
        assert modules
        assert {is_wire_module(module) for module in modules} == {is_wire}, suite
    assert not is_wire_module(tmp_path / "absent.py")


def test_modules_are_divided_so_that_the_largest_part_is_small():
    sizes = {"a": 9, "b": 5, "c": 5, "d": 1}
    assert divide(sizes, 2) == {"a": 0, "b": 1, "c": 1, "d": 0}
    assert set(divide(sizes, 1).values()) == {0}
    assert divide({}, 2) == {}
