"""Parse and print sizes, durations, rates, counts and ratios.

Rules, for both directions:

1. Values are in base units: bytes, seconds, bytes per second, per second, and 1 for a ratio.
2. ``KiB`` is 1024 bytes and ``kB`` is 1000 (IEC 80000-13). A bare ``k`` is an error in sizes and rates,
   because tools disagree on it; in counts it is 1000.
3. Without a unit, a size is in bytes and a count is a plain number. A duration or rate without a unit is an
   error (``p99 <= 5`` would be five seconds).
4. Parsing is exact: the text is read as a fraction and rounded once, at the end. A size is whole bytes.
5. Printed values can be parsed again; they have three significant digits by default.

Functions that parse raise :class:`ValueError` with one sentence for the user.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

_BINARY: Mapping[str, int] = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DECIMAL: Mapping[str, int] = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES: Mapping[str, Fraction] = {
    name: Fraction(factor) for name, factor in {"B": 1, **_BINARY, **_DECIMAL}.items()
}
_RATES: Mapping[str, Fraction] = {f"{name}/s": factor for name, factor in _SIZES.items()}
_DURATIONS: Mapping[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
_COUNTS: Mapping[str, Fraction] = {
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
}
_RATIOS: Mapping[str, Fraction] = {"": Fraction(1), "%": Fraction(1, 100)}

# At most 18 digits on each side, so that no text makes a number of a million digits.
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([A-Za-zµ%/]*)", re.ASCII)
_NOTHING = 1e-9  # smaller values, in the smallest unit, print as 0


def _split(text: str, wanted: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not {wanted}")
    return Fraction(match[1]), match[2]


def _parse(
    text: str, wanted: str, units: Mapping[str, Fraction], *, without_unit: Sequence[str] = ()
) -> Fraction:
    """Return the number in ``text`` times its unit; a number without unit gets ``without_unit`` as advice."""
    number, unit = _split(text, wanted)
    if not unit and without_unit:
        suggestions = " or ".join(f"{text.strip()}{each}" for each in without_unit)
        raise ValueError(f"{text!r} has no unit: write {suggestions}")
    if unit not in units:
        names = ", ".join(name for name in units if name and name != "µs")
        raise ValueError(f"{text!r} is not {wanted}: the units are {names}")
    return number * units[unit]


def parse_size(text: str) -> int:
    """Return the bytes in ``64KiB``, ``1 MiB``, ``4kB``, ``512B`` or ``512``."""
    wanted = "a size such as 64KiB"
    _, unit = _split(text, wanted)
    if unit in {"k", "K", "KB", "m", "M", "g", "G", "t", "T", "Ki", "Mi", "Gi", "Ti"}:
        letter = unit[0].upper()
        decimal = "kB" if letter == "K" else f"{letter}B"
        plain = text.strip().removesuffix(unit)
        raise ValueError(
            f"{text!r}: {unit} is ambiguous: write {plain}{letter}iB (1024) or {plain}{decimal} (1000)"
        )
    total = _parse(text, wanted, {"": Fraction(1), **_SIZES})
    if total.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(total)


def parse_duration(text: str) -> float:
    """Return the seconds in ``250us``, ``5ms``, ``10s``, ``2min`` or ``1h``."""
    return float(_parse(text, "a duration such as 5ms or 10s", _DURATIONS, without_unit=("s", "ms")))


def parse_rate(text: str) -> float:
    """Return the bytes per second in ``1GiB/s`` or ``500MB/s``."""
    return float(_parse(text, "a bandwidth such as 50MiB/s", _RATES, without_unit=("MiB/s", "MB/s")))


def parse_count(text: str) -> float:
    """Return the number in ``20000``, ``20k`` or ``1.5M``."""
    return float(_parse(text, "a number such as 20000 or 20k", _COUNTS))


def parse_ratio(text: str) -> float:
    """Return the fraction of 1 in ``5%`` or ``0.05``."""
    return float(_parse(text, "a share such as 5% or 0.05", _RATIOS))


def _parse_per_second(text: str) -> float:
    return parse_count(text.strip().removesuffix("/s"))


def _parse_bytes(text: str) -> float:
    """Return a measured number of bytes; a mean need not be whole."""
    return float(_parse(text, "a size such as 64KiB", {"": Fraction(1), **_SIZES}))


_PARSERS: Mapping[str, Callable[[str], float]] = {
    "B": _parse_bytes,
    "B/s": parse_rate,
    "/s": _parse_per_second,
    "s": parse_duration,
    "ratio": parse_ratio,
    "count": parse_count,
}


def parse_value(text: str, unit_symbol: str) -> float:
    """Parse ``text`` as a value of that unit, in the base unit.

    ``unit_symbol`` is a value of :class:`storagetest.measure.run.Unit`: ``B``, ``B/s``, ``/s``, ``s``,
    ``ratio`` or ``count``.
    """
    return _PARSERS[unit_symbol](text)


def format_size(size: int) -> str:
    """Print bytes exactly and without a space: ``64KiB``, ``4kB``, ``513B``."""
    for units in (_BINARY, _DECIMAL):
        for name, factor in reversed(list(units.items())):
            if size and size % factor == 0:
                return f"{size // factor}{name}"
    return f"{size}B"


def _scaled(value: float, units: Mapping[str, float], digits: int, space: str) -> str:
    """Print in the first of the ascending ``units`` in which the rounded value is below 1000."""
    if not math.isfinite(value):
        return f"{value}"
    text, unit = "0", min(units, key=lambda name: abs(math.log(units[name])))
    if value:
        for name, factor in units.items():
            text, unit = _significant(value / factor, digits), name
            if abs(float(text)) < 1000:
                break
    return f"{text}{space}{unit}".rstrip()


def _significant(value: float, digits: int) -> str:
    """Return ``value`` with that many significant digits and never an exponent: 3 gives 0.977, 52.4, 1230."""
    if abs(value) < _NOTHING:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}"


_FITTING = {name: float(factor) for name, factor in _DURATIONS.items() if factor <= 1 and name != "µs"}


def format_duration(seconds: float, *, digits: int = 3) -> str:
    """Print seconds in ns, us, ms, s, min or h: ``4.12 ms``."""
    fitting = _FITTING
    if abs(seconds) >= 999.5:  # below that, 90.0 s is clearer than 1.50 min
        fitting = {"h": 3600.0} if abs(seconds) >= 3600 else {"min": 60.0}
    return _scaled(seconds, fitting, digits, " ")


def format_throughput(rate: float, *, both: bool = False, digits: int = 3) -> str:
    """Print bytes per second as ``50.0 MiB/s``; with ``both`` as ``50.0 MiB/s (52.4 MB/s)``."""
    binary, decimal = (
        _scaled(rate, {f"{unit}/s": float(n) for unit, n in {"B": 1, **units}.items()}, digits, " ")
        for units in (_BINARY, _DECIMAL)
    )
    return f"{binary} ({decimal})" if both else binary


def format_bytes(size: float, *, digits: int = 3) -> str:
    """Print a measured number of bytes as ``50.0 MiB``; :func:`format_size` prints exact ones."""
    return _scaled(size, {unit: float(n) for unit, n in {"B": 1, **_BINARY}.items()}, digits, " ")


def format_count(value: float, *, digits: int = 3) -> str:
    """Print a number as ``7``, ``0.250``, ``12.3k`` or ``1.50M``; whole numbers below 1000 are exact."""
    if float(value).is_integer() and abs(value) < 1000:
        return str(int(value))
    return _scaled(value, {name: float(factor) for name, factor in _COUNTS.items()}, digits, "")


def format_ratio(value: float, *, digits: int = 3) -> str:
    """Print a share as ``5.12%``."""
    return f"{_significant(value * 100, digits)}%" if math.isfinite(value) else f"{value}"


def format_value(value: float, unit_symbol: str, *, both: bool = False, digits: int = 3) -> str:
    """Print a value of a base unit; :func:`parse_value` reads it again (unless ``both``).

    ``unit_symbol`` is a value of :class:`storagetest.measure.run.Unit`. ``both`` adds MB/s to MiB/s. Raise
    ``digits`` if two values would otherwise print alike.
    """
    if unit_symbol == "B/s":
        return format_throughput(value, both=both, digits=digits)
    if unit_symbol == "/s":
        return f"{format_count(value, digits=digits)}/s"
    formatters = {"B": format_bytes, "s": format_duration, "ratio": format_ratio, "count": format_count}
    if unit_symbol not in formatters:
        raise ValueError(f"no such unit: {unit_symbol!r}")
    return formatters[unit_symbol](value, digits=digits)
