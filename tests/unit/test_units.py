"""units: what people write is read exactly; what is printed can be read again; the rest is refused."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storagetest import units
from storagetest.measure.unit import Unit

SIZES = [
    ("0", 0),
    ("4096", 4096),
    ("512B", 512),
    ("64KiB", 65536),
    (" 1 MiB ", 1 << 20),
    ("1.5KiB", 1536),
    ("0.001kB", 1),
    ("4kB", 4000),
    ("3MB", 3_000_000),
    ("2GB", 2_000_000_000),
    ("1TB", 10**12),
    ("1GiB", 1 << 30),
    ("2TiB", 2 << 40),
]

DURATIONS = [
    ("250us", 250e-6),
    ("250µs", 250e-6),
    ("5ms", 0.005),
    ("1.5 s", 1.5),
    ("10s", 10.0),
    ("2min", 120.0),
    ("1h", 3600.0),
    ("100ns", 1e-7),
]

VALUES = [
    ("1GiB/s", "B/s", float(1 << 30)),
    ("500MB/s", "B/s", 5e8),
    ("7B/s", "B/s", 7.0),
    ("20000", "/s", 20000.0),
    ("20k", "/s", 20000.0),
    ("20k/s", "/s", 20000.0),
    ("1.5M", "count", 1.5e6),
    ("5%", "ratio", 0.05),
    ("0.05", "ratio", 0.05),
    ("5ms", "s", 0.005),
]

REFUSED = [
    (units.parse_size, "4k", "4KiB (1024) or 4kB (1000)"),
    (units.parse_size, "4K", "4KiB (1024) or 4kB (1000)"),
    (units.parse_size, "2KB", "2KiB (1024) or 2kB (1000)"),
    (units.parse_size, "8G", "8GiB (1024) or 8GB (1000)"),
    (units.parse_size, "1.5B", "not a whole number of bytes"),
    (units.parse_size, "4Kib", "the units are B, KiB"),
    (units.parse_size, "-1", "a size such as 64KiB"),
    (units.parse_size, "", "a size such as 64KiB"),
    (units.parse_size, "1e3", "is not a size such as 64KiB"),
    (units.parse_size, "٣B", "a size such as 64KiB"),
    (units.parse_size, "9" * 5000, "a size such as 64KiB"),
    (units.parse_duration, "5", "has no unit: write 5s or 5ms"),
    (units.parse_duration, "5m", "the units are ns, us, ms, s, min, h"),
    (units.parse_duration, "soon", "a duration such as 5ms"),
    (units.parse_rate, "50", "has no unit: write 50MiB/s or 50MB/s"),
    (units.parse_rate, "50MiB", "the units are B/s, KiB/s"),
    (units.parse_rate, "50Mb/s", "the units are B/s, KiB/s"),
    (units.parse_count, "20K", "the units are k, M, G"),
    (units.parse_ratio, "5 percent", "a share such as 5%"),
]

PRINTED = [
    (0.0, "s", "0 s"),
    (0.004123, "s", "4.12 ms"),
    (0.0009996, "s", "1.00 ms"),
    (2.5e-7, "s", "250 ns"),
    (1.0, "s", "1.00 s"),
    (90.0, "s", "90.0 s"),
    (999.7, "s", "16.7 min"),
    (7200.0, "s", "2.00 h"),
    (50 * 2**20, "B/s", "50.0 MiB/s"),
    (1023.0, "B/s", "0.999 KiB/s"),
    (2555.0, "/s", "2.56k/s"),
    (250.0, "/s", "250/s"),
    (20000.0, "/s", "20.0k/s"),
    (0.25, "/s", "0.250/s"),
    (3.0, "count", "3"),
    (0.0512, "ratio", "5.12%"),
    (-5e6, "/s", "-5.00M/s"),
    (math.nan, "ratio", "nan"),
    (math.inf, "s", "inf"),
]


@pytest.mark.parametrize(("text", "value"), SIZES)
def test_size_is_read(text, value):
    assert units.parse_size(text) == value


@pytest.mark.parametrize(("text", "value"), DURATIONS)
def test_duration_is_read(text, value):
    assert units.parse_duration(text) == value


@pytest.mark.parametrize(("text", "symbol", "value"), VALUES)
def test_value_of_a_unit_is_read(text, symbol, value):
    assert units.parse_value(text, symbol) == value


@pytest.mark.parametrize(("parse", "text", "message"), REFUSED)
def test_a_refusal_is_one_sentence(parse, text, message):
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("value", "symbol", "text"), PRINTED)
def test_value_is_printed(value, symbol, text):
    assert units.format_value(value, symbol) == text


def test_bandwidth_in_both_units_when_asked():
    assert units.format_value(50 * 2**20, "B/s", both=True) == "50.0 MiB/s (52.4 MB/s)"


def test_more_digits_distinguish_near_values():
    assert units.format_value(2555.0, "/s") == units.format_value(2557.0, "/s")
    assert units.format_value(2555.0, "/s", digits=4) == "2.555k/s"


def test_every_unit_of_a_metric_can_be_printed_and_read():
    for unit in Unit:
        assert units.parse_value(units.format_value(12.5, unit.value), unit.value) == pytest.approx(12.5)


def test_unknown_unit_is_refused():
    with pytest.raises(ValueError, match="no such unit: 'furlong'"):
        units.format_value(1.0, "furlong")


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=10**17))
def test_sizes_print_exactly(size):
    assert units.parse_size(units.format_size(size)) == size


@settings(deadline=None)
@given(st.floats(min_value=1e-6, max_value=1e14), st.sampled_from([unit.value for unit in Unit]))
def test_what_is_printed_is_read_as_nearly_the_same(value, symbol):
    assert units.parse_value(units.format_value(value, symbol), symbol) == pytest.approx(value, rel=0.0051)


@settings(deadline=None)
@given(st.floats(min_value=1e-6, max_value=1e14), st.sampled_from([unit.value for unit in Unit]))
def test_digits_are_kept(value, symbol):
    again = units.parse_value(units.format_value(value, symbol, digits=7), symbol)
    assert again == pytest.approx(value, rel=1e-6)


@settings(deadline=None)
@given(
    st.text(),
    st.sampled_from(
        [units.parse_size, units.parse_duration, units.parse_rate, units.parse_count, units.parse_ratio]
    ),
)
def test_no_text_gives_anything_but_a_number_or_a_valueerror(text, parse):
    try:
        value = parse(text)
    except ValueError:
        return
    assert value >= 0
