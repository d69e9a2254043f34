"""Charts and timelines as SVG."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.measure.histogram import Histogram
from storagetest.measure.series import LOAD, Series
from storagetest.measure.unit import Unit
from storagetest.report.chart import LOOKS, Axis, Line, chart_svg, chart_table
from storagetest.report.latency_chart import curves, distribution_svg, histograms
from storagetest.report.timeline import timeline_svg

SVG = "{http://www.w3.org/2000/svg}"
X, Y = Axis("x"), Axis("y")


def drawn(*lines: Line, x: Axis = X, y: Axis = Y, **more) -> ET.Element:
    return ET.fromstring(chart_svg(lines, x, y, title="a <title>", described="what it is", **more))


def texts(drawing: ET.Element) -> list[str]:
    return [element.text or "" for element in drawing.iter(f"{SVG}text")]


def points(drawing: ET.Element) -> list[list[tuple[float, ...]]]:
    return [
        [tuple(map(float, point.split(","))) for point in (line.get("points") or "").split()]
        for line in drawing.iter(f"{SVG}polyline")
    ]


def test_it_has_a_title_a_description_and_axes():
    drawing = drawn(Line("one", [(0, 0), (1, 100)]))
    assert drawing.get("role") == "img"
    labels = (drawing.get("aria-labelledby") or "").split()
    found = {each.get("id"): each.text for each in drawing.iter() if each.get("id")}
    assert [found[name] for name in labels] == ["a <title>", "what it is"]
    assert {"x", "y", "one", "0", "100"} <= set(texts(drawing))


def test_linear_axes_begin_at_zero_and_points_stand_where_they_belong():
    ((first, middle, last),) = points(drawn(Line("one", [(0, 0), (5, 50), (10, 100)])))
    assert middle == pytest.approx(((first[0] + last[0]) / 2, (first[1] + last[1]) / 2), abs=0.1)
    assert first[1] > last[1]


def test_logarithmic_axes_give_each_decade_the_same_room_and_leave_out_what_is_not_above_zero():
    line = Line("one", [(1, 0.001), (10, 0.1), (100, 10), (0, 5), (5, -1)])
    ((a, b, c),) = points(drawn(line, x=Axis("x", log=True), y=Axis("y", log=True)))
    assert b[0] - a[0] == pytest.approx(c[0] - b[0], abs=0.2)
    assert b[1] - a[1] == pytest.approx(c[1] - b[1], abs=0.2)


def test_an_axis_of_moments_does_not_begin_at_zero():
    ((a, b),) = points(drawn(Line("one", [(1e9, 1), (1e9 + 60, 2)]), x=Axis("x", from_zero=False)))
    assert b[0] - a[0] > 200


def test_what_is_not_sure_is_dotted():
    drawing = drawn(Line("one", [(0, 1), (1, 2), (2, 3), (3, 4)], dashed_from=1.0))
    sure, faint = points(drawing)
    assert (len(sure), len(faint)) == (2, 3)
    assert sure[-1] == faint[0]


def test_lines_differ_by_more_than_colour():
    drawing = drawn(*(Line(str(n), [(0, n), (1, n + 1)]) for n in range(LOOKS)))
    looks = {
        (line.get("stroke-dasharray"), group[-1].tag, group[-1].get("fill"))
        for group in drawing.iter(f"{SVG}g")
        for line in group.iter(f"{SVG}polyline")
    }
    assert len(looks) == 4  # and four colours apart, the next four look like these


def test_more_lines_than_can_be_distinguished_are_refused():
    with pytest.raises(ValueError, match="9 lines"):
        chart_svg([Line("l", [(0, 1)])] * 9, X, Y, title="t")


def test_nothing_is_drawn_of_nothing():
    assert chart_svg([], X, Y, title="t") == ""
    assert chart_svg([Line("l", [(0, float("nan")), (float("inf"), 1)])], X, Y, title="t") == ""


@given(
    st.lists(
        st.tuples(st.just(0.0) | st.floats(1e-12, 1e15), st.floats(-1e15, -1e-12) | st.floats(1e-12, 1e15)),
        min_size=1,
        max_size=20,
    ),
    st.booleans(),
    st.booleans(),
)
def test_no_point_leaves_the_drawing(values, log_x, log_y):
    text = chart_svg([Line("l", values)], Axis("x", log=log_x), Axis("y", log=log_y), title="t")
    if not text:
        assert (log_x or log_y) and not any((x > 0 or not log_x) and (y > 0 or not log_y) for x, y in values)
        return
    assert "nan" not in text
    assert "inf" not in text
    for line in points(ET.fromstring(text)):
        assert all(0 <= left <= 640 and 0 <= top <= 300 for left, top in line)


def test_the_table_has_what_the_chart_shows():
    table = chart_table([Line("a<", [(1, 10), (2, 20)]), Line("b", [(2, 5)])], Axis("n"), Axis("IOPS"))
    assert table.heads == ["n", "a<", "b"]
    assert table.rows == [["1", "10", ""], ["2", "20", "5"]]
    assert table.caption == "IOPS by n"
    many = chart_table([Line("a", [(n, n) for n in range(1000)])], X, Y)
    assert len(many.rows) == 40
    assert many.rows[-1][0] == "999"


def test_a_distribution_reaches_p99_99_on_logarithmic_axes(make_record):
    run = make_record().run
    drawing = ET.fromstring(distribution_svg(run, "t"))
    assert {"0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "all (15,000)"} <= set(texts(drawing))
    assert any(text.endswith(" ms") for text in texts(drawing))
    assert drawing.find(f"{SVG}style") is not None
    assert list(histograms(run)) == ["all"]


def test_without_latencies_there_is_no_distribution(make_record):
    assert distribution_svg(make_record(repeats=0).run, "t") == ""


def test_a_curve_is_dotted_beyond_what_its_ios_carry():
    (line,) = curves({"all": Histogram.of([1e-3] * 999 + [2e-3])})
    assert line.dashed_from == pytest.approx(1.0)


def one(source: str, name: str, unit: Unit, values: tuple[float, ...], host: str = "c") -> Series:
    return Series(source, name, unit, host, tuple(float(at) for at in range(len(values))), values)


def texts_in(drawing: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(drawing).iter(f"{SVG}text")]


def test_no_timeline_is_drawn_of_nothing():
    assert timeline_svg([]) == ""
    assert timeline_svg([Series("cpu", "all", Unit.RATIO, "c", (), ())]) == ""


def test_the_load_is_above_and_every_unit_has_its_panel():
    drawing = timeline_svg(
        [
            one("cpu", "all", Unit.RATIO, (0.1, 0.2)),
            one("nic", "eth0 sent", Unit.BYTES_PER_SECOND, (1.0, 2.0), "server"),
            one(LOAD, "read IOPS", Unit.PER_SECOND, (100.0, 200.0)),
            one(LOAD, "read latency", Unit.SECONDS, (0.001, 0.002)),
        ],
        "a <title>",
    )
    shown = texts_in(drawing)
    assert shown[0] == "a <title>"
    panels = [text for text in shown if " on " in text]
    assert panels == ["load on c", "load on c", "cpu on c", "nic on server"]
    assert "200/s" in shown
    assert "2.00 ms" in shown
    assert len(list(ET.fromstring(drawing).iter(f"{SVG}polyline"))) == 4


def test_points_stand_where_they_belong():
    drawing = timeline_svg([one("cpu", "all", Unit.RATIO, (0.0, 1.0, 0.5))])
    (line,) = ET.fromstring(drawing).iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    bottom, top, middle = (y for _, y in points)
    assert middle == (bottom + top) / 2
    assert bottom > top


def test_what_does_not_fit_is_counted_and_a_single_point_is_seen():
    many = [one("cpu", f"cpu{core}", Unit.RATIO, (core / 10,)) for core in range(9)]
    drawing = timeline_svg(many)
    assert "and 3 more that stay below" in texts_in(drawing)
    assert "cpu8" in texts_in(drawing)
    assert "cpu0" not in texts_in(drawing)
    assert len(list(ET.fromstring(drawing).iter(f"{SVG}circle"))) == 6
