"""Histograms in fio's bins: what they promise, held against exact figures and against fio itself."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storagetest.measure.histogram import LONGEST, RELATIVE_ERROR, Histogram, merge

nanoseconds = st.one_of(
    st.integers(0, 300),
    st.integers(0, 2**34 - 1),
    st.builds(lambda power, off: max(0, 2**power + off), st.integers(0, 33), st.integers(-2, 2)),
)
latencies = st.lists(nanoseconds, max_size=60)
quantiles = st.one_of(st.sampled_from([0.5, 0.95, 0.99, 0.999, 1.0]), st.floats(0.001, 1))


def of(ns: list[int]) -> Histogram:
    return Histogram.of(n * 1e-9 for n in ns)


@settings(deadline=None)
@given(latencies, latencies, latencies)
def test_merging_is_associative_commutative_and_equals_pooling(a, b, c):
    assert (of(a) + of(b)) + of(c) == of(a) + (of(b) + of(c)) == of(a + b + c) == of(c) + of(b) + of(a)
    assert merge([of(a), of(b), of(c)]).count == len(a + b + c)


@settings(deadline=None)
@given(latencies)
def test_an_empty_histogram_changes_nothing(a):
    assert of(a) + Histogram() == of(a) == merge([of(a)])


@settings(deadline=None)
@given(st.lists(nanoseconds, min_size=1, max_size=200), quantiles)
def test_a_percentile_is_within_the_bins_error_of_the_exact_one(ns, q):
    exact = sorted(ns)[math.ceil(q * len(ns) - 5e-10) - 1]
    got = of(ns).percentile(q) * 1e9
    assert abs(got - exact) <= exact * RELATIVE_ERROR + 1e-6
    if exact < 128:
        assert got == pytest.approx(exact)


@settings(deadline=None)
@given(st.lists(nanoseconds, min_size=1))
def test_the_mean_is_within_the_bins_error(ns):
    assert of(ns).mean * 1e9 == pytest.approx(sum(ns) / len(ns), rel=RELATIVE_ERROR + 1e-9, abs=1e-6)


@settings(deadline=None)
@given(nanoseconds)
def test_every_latency_lands_in_a_bucket_that_fio_would_print(ns):
    ((middle, _),) = of([ns]).bins
    assert Histogram.from_fio_bins({str(middle): 1}) == of([ns])


@settings(deadline=None)
@given(latencies)
def test_json_brings_it_back(a):
    assert Histogram.from_json(json.loads(json.dumps(of(a).to_json()))) == of(a)


@pytest.mark.parametrize(
    ("ns", "middle"),
    [
        (0, 0), (1, 1), (127, 127), (128, 129), (129, 129), (130, 131), (255, 255), (256, 258), (259, 258),
        (32000, 32128), (32255, 32128), (32256, 32384), (64766, 64768), (2**34 - 1, 2**34 - 2**26),
    ],
)  # fmt: skip
def test_the_buckets_are_where_fio_has_them(ns, middle):
    """The figures are those that fio 3.33 prints (and its plat_idx_to_val gives)."""
    assert of([ns]).bins == ((middle, 1),)


def test_percentiles_are_those_that_fio_computes():
    """Bins and percentiles as one run of fio 3.33 printed them (256 writes, some bins pooled)."""
    bins = {"2512": 1, "2544": 5, "2576": 7, "2608": 5, "2640": 9, "2672": 16, "2704": 19, "2736": 16}
    bins |= {"2768": 14, "2800": 25, "2832": 21, "2864": 21, "2896": 14, "2928": 14, "2960": 18, "3184": 51}
    histogram = Histogram.from_fio_bins(bins)
    assert histogram.count == 256
    fio = {0.01: 2544, 0.05: 2576, 0.10: 2640, 0.20: 2704, 0.30: 2736, 0.40: 2800, 0.50: 2832}
    fio |= {0.60: 2864, 0.70: 2928}
    assert {q: round(histogram.percentile(q) * 1e9) for q in fio} == fio


def test_the_smallest_rank_is_not_missed_by_a_rounding_error():
    assert of(list(range(100))).percentile(0.07) == pytest.approx(6e-9)  # 0.07 * 100 > 7 in floats


def test_latency_above_the_last_bin_is_a_lower_bound():
    assert of([int(LONGEST * 1e9) * 3]).saturated
    assert of([int(LONGEST * 1e9) * 3]).percentile(0.5) == pytest.approx(LONGEST, rel=RELATIVE_ERROR)
    assert not of([10**9]).saturated
    assert not Histogram().saturated


def test_without_ios_there_is_no_figure():
    assert math.isnan(Histogram().mean)
    assert math.isnan(Histogram().percentile(0.5))


@pytest.mark.parametrize("q", [0, -0.5, 1.1, math.nan])
def test_a_quantile_that_is_none_is_refused(q):
    with pytest.raises(ValueError, match="quantile"):
        of([1]).percentile(q)


@pytest.mark.parametrize(
    "bins", [{"130": 1}, {"-1": 1}, {"x": 1}, {"129": -1}, {"129": 1.5}, {"129": True}, {"1": 1, "01": 2}]
)
def test_bins_that_are_not_fios_are_refused(bins):
    with pytest.raises(ValueError):
        Histogram.from_fio_bins(bins)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"layout": "hdr", "unit": "ns", "bins": []},
        {"layout": "fio/6/29", "unit": "ns", "bins": [[1, 1], [1, 1]]},
        [],
    ],
)
def test_json_that_is_not_ours_is_refused(document):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Histogram.from_json(document)


def test_a_negative_latency_is_refused():
    with pytest.raises(ValueError, match="latency"):
        Histogram.of([-1.0])
