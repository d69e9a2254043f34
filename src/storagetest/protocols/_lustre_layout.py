"""Layouts of Lustre files: parse a requested one, build options of lfs-setstripe(1), read lfs-getstripe(1).

A layout is a sequence of components, each up to an offset of the file; a plain layout is one component
without an end. Invariants:

1. The ends of a requested layout ascend, and only the last may be the end of all files.
2. The comparison reads no template: every component of the compared file has objects, because a byte was
   written at its start. A component without objects is a mismatch.
3. -1 requests all OSTs of the pool (without a pool, of the file system), and is compared with their number.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from storagetest.protocols.base import OptionMismatch
from storagetest.units import format_size

ALL = -1
"""The stripe count of all OSTs, and the stripe offset of any OST (lfs-setstripe(1))."""

STRIPE_SIZE_UNIT = 64 * 1024
"""A stripe size and a component's end are multiples of it (lfs-setstripe(1), --stripe-size)."""

POOL = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,14}"
"""Name of an OST pool: at most 15 characters (lctl-pool_new(8))."""

_MOST_STRIPES = 2000
"""The largest stripe count (Lustre Operations Manual, "Lustre File Striping")."""
_SIZE = re.compile(r"(\d+)([kKMGT]?)(?:iB)?")
_UNITS = {"": 1, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NAMES = {
    "-E": "end", "--component-end": "end",
    "-c": "stripe_count", "--stripe-count": "stripe_count",
    "-S": "stripe_size", "--stripe-size": "stripe_size",
    "-i": "stripe_offset", "--stripe-index": "stripe_offset",
    "-p": "pool", "--pool": "pool",
    "-L": "pattern", "--layout": "pattern",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Component:
    """One component; None: not requested. ``end`` in bytes is None for the end of all files.

    ``pattern`` is ``raid0`` or ``mdt``, or "". ``objects``: the component of a file has objects.
    """

    end: int | None = None
    stripe_count: int | None = None
    stripe_size: int | None = None
    stripe_offset: int | None = None
    pool: str | None = None
    pattern: str = ""
    objects: bool = True

    def __str__(self) -> str:
        """Return a short text for ids and reports, such as ``1MiB-c4-s256KiB``."""
        parts = ["eof" if self.end is None else format_size(self.end)]
        parts += [self.pattern] if self.pattern == "mdt" else []
        parts += [] if self.stripe_count is None else [f"c{_signed(self.stripe_count)}"]
        parts += [] if self.stripe_size is None else [f"s{format_size(self.stripe_size)}"]
        parts += [] if self.stripe_offset is None else [f"i{_signed(self.stripe_offset)}"]
        parts += [] if self.pool is None else [self.pool]
        return "-".join(parts)


@dataclass(frozen=True, slots=True)
class FileLayout:
    """A progressive layout: ``text`` as written, and its components."""

    text: str
    components: tuple[Component, ...]

    def __str__(self) -> str:
        return "+".join(map(str, self.components))


def parse_layout(text: object) -> FileLayout:
    """Parse lfs-setstripe(1)'s options of a progressive layout. Raises ValueError with one sentence."""
    if isinstance(text, FileLayout):
        return text
    if not isinstance(text, str):
        raise ValueError(  # noqa: TRY004  # pydantic reports a ValueError
            "expected the options of lfs setstripe, such as '-E 1M -c 1 -E eof -c 4'"
        )
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"the options of lfs setstripe cannot be split into words: {error}") from None
    components = tuple(_components(words))
    if not components:
        raise ValueError("the layout has no component: each begins with -E END, such as '-E 1M -c 1'")
    ends = [component.end for component in components]
    if None in ends[:-1]:
        raise ValueError("a component follows the one that ends at the end of the file (-E eof)")
    for before, after in pairwise(ends):
        if before is not None and after is not None and after <= before:
            raise ValueError(
                f"the component that ends at {format_size(after)} follows one that ends at "
                f"{format_size(before)}: ends have to ascend"
            )
    if any(component.pattern == "mdt" for component in components[1:]):
        raise ValueError("only the first component can be on the MDT (-L mdt)")
    return FileLayout(text, components)


def _components(words: Sequence[str]) -> Iterator[Component]:
    fields: dict[str, object] = {}
    for option, value in _options(words):
        name = _NAMES[option]
        if name == "end" and fields:
            yield _component(fields)
            fields = {}
        if name != "end" and not fields:
            raise ValueError(f"{option} {value} belongs to no component: a component begins with -E END")
        if name in fields:
            raise ValueError(f"{option} is given twice for one component")
        fields[name] = _VALUES[name](option, value)
    if fields:
        yield _component(fields)


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return options with their values; ``--option=value`` is one word."""
    rest = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for option, value in zip(rest[::2], [*rest[1::2], ""], strict=False):
        if option not in _NAMES:
            known = ", ".join(name for name in _NAMES if len(name) == 2)
            raise ValueError(f"{option} is no option of a layout; {known} are")
        if not value:
            raise ValueError(f"{option} has no value")
        yield option, value


def _component(fields: Mapping[str, object]) -> Component:
    component = Component(**fields)  # type: ignore[arg-type]  # the values were converted by name
    if component.pattern == "mdt" and len(fields) > 2:
        raise ValueError("a component on the MDT (-L mdt) has no stripes: it takes -E alone")
    return component


def _end(option: str, value: str) -> int | None:
    return None if value in {"-1", "eof", "EOF"} else _bytes(option, value)


def _bytes(option: str, value: str) -> int:
    match = _SIZE.fullmatch(value)
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if size <= 0 or size % STRIPE_SIZE_UNIT:
        raise ValueError(f"{option} {value}: expected a multiple of 64KiB, such as 64K, 1M or 1G")
    return size


def _stripes(option: str, value: str) -> int:
    return _number(option, value, least=ALL, most=_MOST_STRIPES)


def _offset(option: str, value: str) -> int:
    return _number(option, value, least=ALL, most=65535)


def _number(option: str, value: str, *, least: int, most: int) -> int:
    if not re.fullmatch(r"-?\d{1,9}", value) or not least <= int(value) <= most:
        raise ValueError(f"{option} {value}: expected a number from {least} to {most}")
    return int(value)


def _pool(option: str, value: str) -> str:
    if not re.fullmatch(POOL, value):
        raise ValueError(f"{option} {value}: expected the name of a pool, of at most 15 characters")
    return value


def _pattern(option: str, value: str) -> str:
    if value not in {"mdt", "raid0"}:
        raise ValueError(f"{option} {value}: expected mdt or raid0")
    return value


_VALUES = {
    "end": _end,
    "stripe_count": _stripes,
    "stripe_size": _bytes,
    "stripe_offset": _offset,
    "pool": _pool,
    "pattern": _pattern,
}


def setstripe_argv(components: Sequence[Component], *, progressive: bool) -> list[str]:
    """Build the options of lfs-setstripe(1); without any, the default layout (``-d`` would delete it)."""
    argv: list[str] = []
    for component in components:
        if progressive:
            argv += ["--component-end", str(ALL if component.end is None else component.end)]
        values = {
            "--layout": component.pattern or None,
            "--stripe-count": component.stripe_count,
            "--stripe-size": component.stripe_size,
            "--stripe-index": component.stripe_offset,
            "--pool": component.pool,
        }
        argv += [text for key, value in values.items() if value is not None for text in (key, str(value))]
    return argv or ["--stripe-count", "0"]


def starts(components: Sequence[Component]) -> list[int]:
    """Return the offset at which each component begins."""
    return [0, *(component.end for component in components[:-1] if component.end is not None)]


def parse_getstripe(text: str) -> tuple[Component, ...]:
    """Parse the YAML of ``lfs getstripe --yaml FILE``; a file without components has one.

    Components are keys (``component0:``) of old releases of Lustre, and entries of a list of new ones.
    """
    parts = re.split(r"(?m)^\s*(?:component\d+:\s*$|- (?=lcme_id:))", text)
    return tuple(_read_component(part) for part in (parts[1:] or parts))


def _read_component(text: str) -> Component:
    fields = dict(re.findall(r"(?m)^\s*((?:lmm|lcme)_[a-z_.]+):\s*(\S+)\s*$", text))
    end = fields.get("lcme_extent.e_end", "EOF")
    return Component(
        end=int(end) if end.isdecimal() else None,
        stripe_count=_maybe(fields.get("lmm_stripe_count")),
        stripe_size=_maybe(fields.get("lmm_stripe_size")),
        stripe_offset=_maybe(fields.get("lmm_stripe_offset")),
        pool=fields.get("lmm_pool"),
        pattern=fields.get("lmm_pattern", ""),
        objects="init" in fields.get("lcme_flags", "init").split(","),
    )


def _maybe(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def to_negotiated(components: Sequence[Component]) -> dict[str, str]:
    """Return the values of a layout by name; those of the second component begin with ``component2.``."""
    values: dict[str, str] = {}
    for number, component in enumerate(components, 1):
        prefix = _prefix(number)
        for name in _FIELDS:
            value = getattr(component, name)
            if value not in (None, ""):
                values[prefix + name] = _shown(value)
        if len(components) > 1:
            values[f"{prefix}end"] = "eof" if component.end is None else str(component.end)
    return values


def from_negotiated(values: Mapping[str, str]) -> tuple[Component, ...]:
    """Return the layout that :func:`to_negotiated` made these values of."""
    components: list[Component] = []
    while f"{(prefix := _prefix(len(components) + 1))}objects" in values:
        numbers = {name: _maybe(values.get(prefix + name)) for name in _NUMBERS}
        components.append(
            Component(
                **numbers,
                pool=values.get(f"{prefix}pool"),
                pattern=values.get(f"{prefix}pattern", ""),
                objects=values[f"{prefix}objects"] == "yes",
            )
        )
    return tuple(components)


_NUMBERS = ("end", "stripe_count", "stripe_size", "stripe_offset")
_FIELDS = ("stripe_count", "stripe_size", "stripe_offset", "pool", "pattern", "objects")


def _prefix(number: int) -> str:
    return f"component{number}." if number > 1 else ""


def count_osts(text: str) -> int:
    """Return the number of OSTs in the output of ``lfs osts`` or ``lfs pool_list``, without inactive ones."""
    lines = re.findall(r"(?m)^.*-OST[0-9a-fA-F]{4}_UUID.*$", text)
    return sum("INACTIVE" not in line for line in lines)


def mismatches(
    requested: Sequence[Component], actual: Sequence[Component], osts: Mapping[str, int]
) -> tuple[OptionMismatch, ...]:
    """Compare layouts. ``osts`` maps a pool's name ("": no pool) to its number of OSTs."""
    if not any(_is_requested(component) for component in requested):
        return ()
    if len(requested) != len(actual):
        return (OptionMismatch("layout", _count(requested), _count(actual)),)
    found: list[OptionMismatch] = []
    for number, (wanted, got) in enumerate(zip(requested, actual, strict=True), 1):
        where = f"component {number} " if len(requested) > 1 else ""
        found += (
            OptionMismatch(where + name, _shown(value), _shown(have))
            for name, value, have in _compared(wanted, got, osts)
            if value != have
        )
    return tuple(found)


def _is_requested(component: Component) -> bool:
    """Whether anything is requested of a component; 0 and -1 as an offset are the defaults."""
    numbers = (
        component.end,
        component.stripe_count,
        component.stripe_size,
        component.pool,
        component.pattern,
    )
    return any(numbers) or component.stripe_offset not in (None, ALL)


def _compared(
    wanted: Component, got: Component, osts: Mapping[str, int]
) -> Iterator[tuple[str, object, object]]:
    """Return (option, requested value, actual value) of what was requested."""
    yield "end", wanted.end, got.end
    yield "objects", True, got.objects
    if wanted.pattern:
        yield "pattern", wanted.pattern, got.pattern
    if wanted.stripe_count:
        every = wanted.stripe_count == ALL
        count = osts.get(wanted.pool or "", "all OSTs") if every else wanted.stripe_count
        yield "stripe_count", count, got.stripe_count
    if wanted.stripe_size:
        yield "stripe_size", wanted.stripe_size, got.stripe_size
    if wanted.stripe_offset is not None and wanted.stripe_offset != ALL:
        yield "stripe_offset", wanted.stripe_offset, got.stripe_offset
    if wanted.pool is not None:
        yield "pool", wanted.pool, got.pool


def _shown(value: object) -> str:
    if value is None:
        return "no value"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _count(components: Sequence[Component]) -> str:
    return f"{len(components)} component{'s' if len(components) != 1 else ''}"


def _signed(number: int) -> str:
    return str(number) if number >= 0 else f"minus{-number}"
