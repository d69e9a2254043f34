"""The table at the end of a run: one row a measured case, and beneath it why any of them did not pass.

Rules:

1. Numbers are never cut. What is too wide is shortened in the middle, the longer of the two id columns first;
   when ids are down to their shortest, whole columns of numbers are dropped, the least telling first.
2. Units stand in the heading where a column has one (MiB/s) and in the cell where it varies (latency).
3. The verdict is a word; colour only repeats it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storagetest.report.base import Record, Status
from storagetest.report.figures import Figure, case_text, figures, in_mib, short, whole

__all__ = ["summary_lines"]

_GAP = 2
_SHORTEST_ID = 16
_DROPPED_FIRST = ("mean", "IOPS", "p99")
_COLOURS = {
    Status.PASSED: "32",
    Status.FAILED: "31",
    Status.INVALID: "33",
    Status.ERROR: "31",
    Status.SKIPPED: "36",
}
_WORDS = {
    Status.PASSED: "PASS",
    Status.FAILED: "FAIL",
    Status.INVALID: "INVALID",
    Status.ERROR: "ERROR",
    Status.SKIPPED: "SKIP",
}


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    cells: tuple[str, ...]
    right: bool = True
    is_id: bool = False

    @property
    def width(self) -> int:
        return max(len(cell) for cell in (self.name, *self.cells))


def summary_lines(records: Sequence[Record], *, width: int = 100, colour: bool = False) -> list[str]:
    """Return the table and the reasons as lines of at most ``width`` columns (as far as numbers allow).

    Rows are sorted by target, variant and case. No records: no lines.
    """
    if not records:
        return []
    rows = sorted(records, key=lambda record: (record.run.target, record.run.variant, case_text(record.run)))
    columns = _fit(_columns(rows), width)
    header = _line(column.name.ljust(column.width) if not column.right else column.name.rjust(column.width)
                   for column in columns)  # fmt: skip
    lines = [header, "-" * len(header)]
    for index, record in enumerate(rows):
        cells = [_cell(column, index) for column in columns]
        cells[-1] = _painted(cells[-1].rstrip(), record.status, colour=colour)
        lines.append(_line(cells))
    return [*lines, *_reasons(rows, width=width, colour=colour)]


def _columns(rows: Sequence[Record]) -> list[_Column]:
    values = [figures(record) for record in rows]

    def of(metric: str) -> list[Figure | None]:
        return [value.get(metric) for value in values]

    return [
        _Column("variant", tuple(record.run.variant for record in rows), right=False, is_id=True),
        _Column("case", tuple(case_text(record.run) for record in rows), right=False, is_id=True),
        _Column("MiB/s", tuple(in_mib(figure) for figure in of("bandwidth"))),
        _Column("IOPS", tuple(whole(figure) for figure in of("iops"))),
        _Column("mean", tuple(short(figure) for figure in of("latency_mean"))),
        _Column("p99", tuple(short(figure) for figure in of("p99"))),
        _Column("verdict", tuple(_word(record) for record in rows), right=False),
    ]


def _word(record: Record) -> str:
    """Return the verdict; what passed without any gate has only been measured."""
    if record.status is Status.PASSED and not record.verdicts:
        return "no gate"
    return _WORDS[record.status]


def _fit(columns: list[_Column], width: int) -> list[_Column]:
    columns = list(columns)
    for name in ("", *_DROPPED_FIRST):
        columns = [column for column in columns if column.name != name]
        spare = width - sum(column.width + _GAP for column in columns if not column.is_id) + _GAP
        ids = [column for column in columns if column.is_id]
        if spare >= sum(min(column.width, _SHORTEST_ID) + _GAP for column in ids):
            break
    limits = _share(spare - _GAP * len(ids), [column.width for column in ids])
    cut = iter(
        _Column(column.name, tuple(shortened(cell, limit) for cell in column.cells), right=False, is_id=True)
        for column, limit in zip(ids, limits, strict=True)
    )
    return [next(cut) if column.is_id else column for column in columns]


def _share(room: int, wanted: Sequence[int]) -> list[int]:
    """Give each what it wants; while that is too much, take from the largest."""
    given = list(wanted)
    while sum(given) > room and max(given) > _SHORTEST_ID:
        given[given.index(max(given))] -= 1
    return given


def shortened(text: str, limit: int) -> str:
    """Cut ``text`` in the middle, where ids say least: ``nfs-v4.2…nconnect4``."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def _cell(column: _Column, index: int) -> str:
    cell = column.cells[index]
    return cell.rjust(column.width) if column.right else cell.ljust(column.width)


def _line(cells: Iterable[str]) -> str:
    return (" " * _GAP).join(cells).rstrip()


def _painted(word: str, status: Status, *, colour: bool) -> str:
    return f"\x1b[{_COLOURS[status]}m{word}\x1b[0m" if colour else word


def _reasons(rows: Sequence[Record], *, width: int, colour: bool) -> list[str]:
    lines: list[str] = []
    for record in rows:
        if not record.reasons:
            continue
        run = record.run
        word = _painted(_word(record), record.status, colour=colour)
        lines += [
            "",
            f"{word} {run.variant} on {run.client}: {case_text(run)}",
        ]
        for reason in record.reasons:
            for paragraph in reason.splitlines():
                lines += textwrap.wrap(
                    paragraph,
                    max(width, 40),
                    initial_indent="    ",
                    subsequent_indent="      ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
    return lines
