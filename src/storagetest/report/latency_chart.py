"""Chart of latency distributions: share of the I/Os against their maximum latency, both logarithmic.

The axis of shares is logarithmic in the remaining share (90 %, 99 %, 99.9 %, 99.99 %), so the tail fills most
of it. A curve is dotted where fewer than 100 I/Os are beyond a point.
"""

from __future__ import annotations

from collections.abc import Mapping

from storagetest.measure.histogram import Histogram, merge
from storagetest.measure.latency_cdf import FARTHEST, Distribution, distribution, nines
from storagetest.measure.run import Run
from storagetest.report.chart import LOOKS, Axis, Line, chart_svg
from storagetest.units import format_duration

_TICKS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)


def _share(place: float) -> str:
    """Print what :func:`nines` made of a share: ``99.9 %``."""
    return f"{100 * (1 - 10**-place):.6g} %"


SHARES = Axis("share of the I/Os", _share, ticks=tuple(nines(each) for each in _TICKS))
TIMES = Axis("took at most", format_duration, log=True)
DESCRIBED = (
    f"Latency distribution to {_share(nines(FARTHEST))} of the I/Os; dotted where fewer than 100 lie beyond."
)


def histograms(run: Run) -> dict[str, Histogram]:
    """Return the latencies of all repeats merged: of all I/Os, or by kind of operation if there are kinds.

    Empty if the run has no histograms. At most as many kinds as a chart can show: those with the most
    operations.
    """
    whole = [sample.latency for sample in run.samples if sample.latency is not None]
    kinds: dict[str, list[Histogram]] = {}
    for sample in run.samples:
        for name, one in sample.operations.items():
            kinds.setdefault(name, []).append(one)
    found = {"all": merge(whole)} if whole else {}
    most = sorted(
        ((name, merge(each)) for name, each in kinds.items()), key=lambda entry: entry[1].count, reverse=True
    )
    kept = {name for name, _ in most[: LOOKS - len(found)]}
    found |= {name: dict(most)[name] for name in kinds if name in kept}
    return {name: each for name, each in found.items() if each.count}


def curves(found: Mapping[str, Histogram]) -> list[Line]:
    """Return a line for each histogram, named with how many I/Os it counts."""
    return [_line(name, distribution(each)) for name, each in found.items()]


def distribution_svg(run: Run, title: str) -> str:
    """Return the chart of a run's latencies as a complete document; "" if the run has no histograms."""
    return chart_svg(
        curves(histograms(run)), SHARES, TIMES, title=title, described=DESCRIBED, alone=True, size=(860, 360)
    )


def _line(name: str, one: Distribution) -> Line:
    points = tuple((nines(share), seconds) for share, seconds in one.points)
    return Line(f"{name} ({one.count:,})", points, marks=False, dashed_from=nines(min(one.trusted, FARTHEST)))
