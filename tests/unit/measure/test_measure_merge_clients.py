"""Many clients as one: the window in which all are at work, tails, who starts late, and the merge."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storagetest.measure.common_window import ActivitySpan, outliers, rate_in_window, window
from storagetest.measure.histogram import Histogram
from storagetest.measure.merge_clients import ClientSample, merge_client_samples
from storagetest.measure.run import METRICS, Better, Metric, Sample
from storagetest.measure.series import LOAD, Series
from storagetest.measure.unit import Unit

HEADLINE = ("bandwidth", "iops", "latency_mean", "p99")

moments = st.floats(0, 1000, allow_nan=False)
spans = st.lists(moments, min_size=4, max_size=4).map(lambda four: ActivitySpan(*sorted(four)))
many_spans = st.lists(spans, min_size=1, max_size=20)
rates = st.floats(0, 1e7)


@given(many_spans)
def test_in_the_window_all_are_at_work_and_it_is_the_longest_such_time(found):
    common = window(found)
    if common.seconds:
        middle = (common.began + common.ended) / 2
        assert all(span.since <= middle <= span.until for span in found)
    assert common.began in {span.since for span in found}
    assert common.ended in {span.until for span in found}
    assert common.last == max(span.last for span in found)


@given(many_spans, st.randoms())
def test_the_order_of_the_clients_does_not_matter(found, random):
    shuffled = list(found)
    random.shuffle(shuffled)
    assert window(shuffled) == window(found)


@given(many_spans, st.floats(-1e3, 1e3))
def test_another_clock_moves_the_window_and_changes_nothing_else(found, offset):
    there = window([span.shifted(offset) for span in found])
    here = window(found)
    assert there.seconds == pytest.approx(here.seconds, abs=1e-9)
    assert there.tail == pytest.approx(here.tail, abs=1e-9)


courses = st.lists(st.tuples(st.floats(0.01, 50), rates), max_size=8).map(sorted)


@given(rates, spans, courses)
@example(2.0, ActivitySpan(0.0, 0.0, 1.5, 2.0), [(1.5, 5e-324)])
def test_in_its_own_span_a_client_did_what_was_counted(rate, span, course):
    if span.until - span.since < 1e-6:
        return
    alone = window([ActivitySpan(span.since, span.since, span.until, span.until)])
    assert rate_in_window(rate, span, alone, course) == pytest.approx(rate, rel=1e-6, abs=1e-6)


@given(rates, st.floats(1, 100), st.floats(0.1, 0.9), courses)
def test_what_is_in_the_window_and_what_is_outside_add_up(rate, length, part, course):
    span, cut = ActivitySpan(0, 0, length, length), length * part
    first, rest = (window([ActivitySpan(low, low, high, high)]) for low, high in ((0, cut), (cut, length)))
    before = rate_in_window(rate, span, first, course) * cut
    after = rate_in_window(rate, span, rest, course) * (length - cut)
    assert before + after == pytest.approx(rate * length, rel=1e-6, abs=1e-6)


@given(rates, spans, spans, courses)
def test_no_window_no_rate_and_never_a_negative_one(rate, mine, other, course):
    common = window([mine, other])
    found = rate_in_window(rate, mine, common, course)
    assert found >= 0
    if not common.seconds:
        assert found == 0


def part(
    name: str, iops: float, *, starts=(0.0,), began=0.0, seconds=10.0, latencies=(1e-3,), error=1e-4, **more
) -> ClientSample:
    latency = Histogram.of(latencies)
    values = {"bandwidth": iops * 4096, "iops": iops, "client_cpu": 0.1}
    values |= {"latency_mean": latency.mean, "p99": latency.percentile(0.99)}
    sample = Sample(values, seconds, round(iops * seconds), latency, **more)
    span = ActivitySpan(began, began, began + seconds, began + seconds)
    return ClientSample(name, sample, starts, {"": span}, error)


def whole(*parts: ClientSample, **more) -> Sample:
    return merge_client_samples(parts, METRICS, HEADLINE, **more)


def test_rates_are_summed_and_the_busiest_client_counts():
    found = whole(part("a", 1000), part("b", 3000))
    assert found.values["iops"] == pytest.approx(4000)
    assert found.values["bandwidth"] == pytest.approx(4000 * 4096)
    assert found.values["client_cpu"] == 0.1
    assert found.invalid == ()
    assert found.ios == 40_000
    assert found.seconds == pytest.approx(10)


@given(st.lists(st.lists(st.floats(1e-6, 10), min_size=1, max_size=30), min_size=1, max_size=8))
def test_percentiles_are_those_of_all_latencies_pooled(clients):
    found = whole(*(part(f"c{number}", 100, latencies=each) for number, each in enumerate(clients)))
    pooled = Histogram.of([latency for each in clients for latency in each])
    assert found.latency == pooled  # lossless
    assert found.values["p99"] == pooled.percentile(0.99)
    assert found.values["latency_mean"] == pytest.approx(pooled.mean)


def test_who_starts_late_shortens_the_window_and_is_named():
    late = part("late", 1000, starts=(3.0,), began=3.0)
    found = whole(part("a", 1000), part("b", 1000), late)
    story = found.concurrency
    assert story.spread == pytest.approx(3.0)
    assert (story.seconds, story.first_done, story.last_done) == pytest.approx((7.0, 10.0, 13.0))
    assert any("3.00 s" in why and "late was the last" in why for why in found.invalid)
    assert found.values["iops"] == pytest.approx(3000)


def test_tail_is_not_part_of_the_aggregate():
    """One did all of its work while the others had ended: that is no part of the sum."""
    course = Series(LOAD, "write IOPS", Unit.PER_SECOND, "b", (10.0, 20.0), (0.0, 2000.0))
    found = whole(part("a", 1000), part("b", 1000, seconds=20.0, series=(course,)))
    assert found.values["iops"] == pytest.approx(1000)
    assert "last done at +20.0 s" in found.evidence["start"]


def test_clients_that_never_met_have_no_sum():
    found = whole(part("a", 1000), part("b", 1000, starts=(0.001,), began=11.0))
    assert found.values["iops"] == 0
    assert any("no time in which all" in why for why in found.invalid)


def test_a_client_without_a_value_leaves_the_metric_out():
    """A sum without one of them would be another load's."""
    other = part("b", 1000)
    del other.sample.values["iops"]  # type: ignore[attr-defined]
    assert "iops" not in whole(part("a", 1000), other).values


def test_an_unknown_start_and_an_unknown_clock_are_no_verdict():
    for other in (part("b", 1, starts=()), part("b", 1)):
        assert any("are not known" in why for why in whole(part("a", 1, starts=()), other).invalid)
    (why,) = whole(part("a", 1), part("b", 1, error=0.02)).invalid
    assert why == "the clock of b is known to ±20.0 ms only, 10.0 ms are allowed"
    assert whole(part("a", 1), part("b", 1, error=0.02), limit=0.05).invalid == ()


def test_evidence_of_a_client_names_it():
    assert whole(part("a", 1), part("b", 1, invalid=("too slow",))).invalid == ("b: too slow",)


def test_of_several_starts_the_worst_counts():
    found = whole(part("a", 1, starts=(0.0, 5.0)), part("b", 1, starts=(0.001, 5.009)))
    assert found.concurrency.spread == pytest.approx(0.009)


def test_the_table_has_a_row_for_each_and_marks_the_outlier():
    found = whole(*(part(f"c{number}", 1000 + number) for number in range(7)), part("slow", 100))
    assert found.concurrency.outliers == ("slow",)
    rows = found.evidence["clients"].splitlines()
    assert len(rows) == 9
    assert [row.split()[0] for row in rows if row.endswith("outlier")] == ["slow"]
    assert rows[-1].startswith("slow")


def test_phases_have_a_window_each():
    metrics = {"create_ops": Metric("create_ops", Unit.PER_SECOND, Better.HIGHER)}
    spans_ = {"create": ActivitySpan(0, 0, 2, 2), "stat": ActivitySpan(3, 3, 5, 6)}
    parts = [ClientSample(name, Sample({"create_ops": 50.0}, 4, 200), (0.0, 3.0), spans_) for name in "ab"]
    found = merge_client_samples(parts, metrics, ("create_ops",))
    assert found.values == {"create_ops": 100.0}
    assert found.seconds == pytest.approx(4)
    assert "stat: all clients active" in found.evidence["start"]


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.floats(1, 2), max_size=20))
def test_outliers_are_few_and_far(values):
    found = outliers(values)
    assert set(found) <= set(values)
    assert len(found) <= len(values) // 2
    assert not (len(values) < 4 and found)


def test_a_metric_of_a_role_is_that_of_its_clients_and_others_need_all():
    def one(name: str, role: str, **values: float) -> ClientSample:
        sample = Sample({**values, "client_cpu": 0.1}, 10.0, 10, role=role)
        return ClientSample(name, sample, (0.0,), {"": ActivitySpan(0, 0, 10, 10)}, 1e-4)

    names = ("read_iops", "write_iops", "iops")
    metrics = {name: Metric(name, Unit.PER_SECOND, Better.HIGHER) for name in names}
    readers = (one("a", "read", read_iops=100), one("b", "read", read_iops=50))
    found = merge_client_samples((*readers, one("c", "write", write_iops=7)), metrics, names)
    assert found.values == {"read_iops": 150, "write_iops": 7}
    assert found.evidence["roles"] == "read: a, b\nwrite: c"
    half = merge_client_samples((readers[0], one("b", "read", iops=1)), metrics, names)
    assert half.values == {}, "a reader without the metric leaves no value of the role"
