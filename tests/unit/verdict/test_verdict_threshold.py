"""Gates as people write them."""

from __future__ import annotations

import pytest

from storagetest.errors import ConfigError
from storagetest.measure.run import METRICS
from storagetest.verdict import Threshold, VariantComparison, parse_comparison, parse_threshold


@pytest.mark.parametrize(
    ("text", "metric", "op", "bound"),
    [
        ("iops >= 20000", "iops", ">=", 20000),
        ("iops>=20k", "iops", ">=", 20000),
        ("  iops  >=  20000/s ", "iops", ">=", 20000),
        ("bandwidth >= 50MiB/s", "bandwidth", ">=", 50 * 2**20),
        ("bandwidth >= 1 GB/s", "bandwidth", ">=", 1e9),
        ("p99 <= 5ms", "p99", "<=", 0.005),
        ("p99.9 <= 250us", "p99.9", "<=", 0.00025),
        ("latency_mean <= 1s", "latency_mean", "<=", 1),
        ("client_cpu <= 80%", "client_cpu", "<=", 0.8),
        ("client_cpu <= 0.8", "client_cpu", "<=", 0.8),
    ],
)
def test_a_gate_is_read(text, metric, op, bound):
    threshold = parse_threshold(text, METRICS, place="t.yaml:3:5")
    assert threshold == Threshold(METRICS[metric], op, pytest.approx(bound), text.strip(), "t.yaml:3:5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'reads like "iops >= 20000"'),
        ("iops", "reads like"),
        ("iops 20000", "reads like"),
        (">= 20000", "reads like"),
        ("iops >=", "reads like"),
        ("iopps >= 20000", "unknown metric 'iopps'; did you mean 'iops'?"),
        ("IOPS >= 20000", "did you mean 'iops'?"),
        ("P99 <= 1ms", "did you mean 'p99'?"),
        ("volume >= 20000", "known: bandwidth, iops,"),
        ("iops > 20000", "unknown operator '>': write iops >= 20000"),
        ("p99 < 5ms", "write p99 <= 5ms"),
        ("iops => 20000", "write iops >= 20000"),
        ("iops == 20000", "write iops >= 20000"),
        (
            "iops <= 20000",
            "higher is better for iops, so this gate would fail good values: did you mean iops >= 20000?",
        ),
        ("p99 >= 5ms", "did you mean p99 <= 5ms?"),
        ("p99 <= 5", "has no unit"),
        ("p99 <= 5parsecs", "the units are"),
        ("bandwidth >= 50", "has no unit"),
        ("bandwidth >= 50MiB", "the units are"),
        ("iops >= many", "not a number"),
        ("iops >= -5", "not a number"),
        ("iops >= 1 and p99 <= 5ms", "not a number"),
        ("iops >= 0", "could never fail"),
        ("p99 <= 0ms", "could never pass"),
        ("client_cpu <= 80", "80 is 80 times the whole: for a share write 80%"),
        ("iops >= baseline", "states the allowed loss: baseline - 5 %"),
        ("iops >= baseline - 5", "states the allowed loss"),
        ("iops >= baseline * 0.9", "states the allowed loss"),
        ("iops >= baseline - 0 %", "equality can never be proven"),
        ("iops >= baseline + 5 %", "did you mean baseline - 5 %?"),
        ("p99 <= baseline - 5 %", "did you mean baseline + 5 %?"),
        ("iops >= baseline - 100 %", "could never fail"),
        ("iops <= baseline - 5 %", "did you mean iops >= baseline - 5 %?"),
    ],
)
def test_what_is_no_gate_is_refused_with_its_place(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_threshold(text, METRICS, place="targets.yaml:12:7")
    assert str(caught.value).startswith(f"targets.yaml:12:7: threshold {text!r}: ")
    assert message in str(caught.value)


def test_without_a_place_none_is_named():
    with pytest.raises(ConfigError) as caught:
        parse_threshold("x", METRICS)
    assert str(caught.value).startswith("threshold 'x'")
    assert caught.value.place is None


@pytest.mark.parametrize(
    ("text", "op", "factor"),
    [
        ("iops >= baseline - 5 %", ">=", 0.95),
        ("iops>=baseline-5%", ">=", 0.95),
        ("p99 <= baseline + 10 %", "<=", 1.1),
        ("p99 <= Baseline + 120.5 %", "<=", 2.205),
    ],
)
def test_a_gate_against_the_baseline_is_read_as_a_factor(text, op, factor):
    found = parse_threshold(text, METRICS, place="t.yaml:3:5")
    assert (found.op, found.bound, found.against) == (op, pytest.approx(factor), "baseline")


@pytest.mark.parametrize(
    ("text", "contest"),
    [
        ("iscsi >= 1.0 x nfs", VariantComparison("iscsi", ">=", 1.0, "nfs")),
        ("nfs-v4.2 <= 1.1x nfs-v3", VariantComparison("nfs-v4.2", "<=", 1.1, "nfs-v3")),
        ("a >= b", VariantComparison("a", ">=", 1.0, "b")),
        ("a <= 0.5 x b", VariantComparison("a", "<=", 0.5, "b")),
    ],
)
def test_a_comparison_is_read(text, contest):
    assert parse_comparison(text) == contest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a is faster", "reads like"),
        ("a >= 2 b", "reads like"),
        ("a > 2 x b", "unknown operator '>': write a >= 2 x b, or <="),
        ("a >= a", "compared with itself"),
        ("a >= 0 x b", "a factor of 0"),
    ],
)
def test_what_is_no_comparison_is_refused_with_its_place(text, message):
    with pytest.raises(ConfigError, match=r"^t.yaml:1:1: ") as caught:
        parse_comparison(text, place="t.yaml:1:1")
    assert message in str(caught.value)
