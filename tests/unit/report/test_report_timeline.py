"""The drawing of a repeat's series."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from storagetest.measure.run import Unit
from storagetest.measure.series import LOAD, Series
from storagetest.report.timeline import timeline_svg

SVG = "{http://www.w3.org/2000/svg}"


def one(source: str, name: str, unit: Unit, values: tuple[float, ...], host: str = "c") -> Series:
    return Series(source, name, unit, host, tuple(float(at) for at in range(len(values))), values)


def texts(drawing: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(drawing).iter(f"{SVG}text")]


def test_nothing_is_drawn_of_nothing():
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
    shown = texts(drawing)
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
    assert "and 3 more that stay below" in texts(drawing)
    assert "cpu8" in texts(drawing)
    assert "cpu0" not in texts(drawing)
    assert len(list(ET.fromstring(drawing).iter(f"{SVG}circle"))) == 6
