"""Gates as people write them."""

from __future__ import annotations

import pytest

from storagetest.errors import ConfigError
from storagetest.measure.run import METRICS
from storagetest.verdict import Threshold, parse_threshold


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
        ("iopps >= 20000", "no metric 'iopps'; did you mean 'iops'?"),
        ("IOPS >= 20000", "did you mean 'iops'?"),
        ("P99 <= 1ms", "did you mean 'p99'?"),
        ("volume >= 20000", "there are: bandwidth, iops,"),
        ("iops > 20000", "'>' is not understood: write iops >= 20000"),
        ("p99 < 5ms", "write p99 <= 5ms"),
        ("iops => 20000", "write iops >= 20000"),
        ("iops == 20000", "write iops >= 20000"),
        (
            "iops <= 20000",
            "higher is better for iops, so this gate would fail what is good: did you mean iops >= 20000?",
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
