"""Tables at the end of a run: one row per measured case, and the reasons of cases that did not pass.

Rules:

1. A table's columns are the headline of its runs (:attr:`Run.headline`); runs with another headline have a
   separate table. This module has no workload-specific code.
2. Neither ids nor numbers are cut. If a row is longer than the terminal's lines, each row has two lines: the
   ids, and below them the numbers. If the numbers still do not fit, columns of them are dropped: first the
   parameters, then those between the first and the last metric of the headline, from the right, then the last
   one.
3. A unit is in the heading if the column has one unit (MiB/s), and in the cell if it varies (latency).
4. The verdict is text; colour only repeats it.
5. The parameters of a load that are compared most, such as block size and queue depth, have columns, also
   where a case leaves them at their defaults. A row of one line does not repeat them in the case's name.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from storagetest.measure.run import HEADLINE, Run
from storagetest.report.base import Record, Status
from storagetest.report.metric_values import (
    MetricValue,
    case_text,
    in_mib,
    metric_values,
    parameter_text,
    short,
    whole,
)
from storagetest.units import format_duration

_GAP = 2
_INDENT = "    "
_HEADINGS: Mapping[str, tuple[str, Callable[[MetricValue | None], str]]] = {
    "bandwidth": ("MiB/s", in_mib),
    "iops": ("IOPS", whole),
    "latency_mean": ("mean", short),
}
"""Metrics whose column has its own heading and format; any other has its name and values with units."""

_PARAMETERS: Mapping[str, str] = {
    "block_size": "block",
    "queue_depth": "depth",
    "jobs": "jobs",
    "read_percent": "reads",
    "random_percent": "random",
}
"""Parameters that have a column, and its heading."""

_WORDS_AND_COLOURS = {
    Status.PASSED: ("PASS", 32),
    Status.LEARNING: ("LEARNING", 33),
    Status.FAILED: ("FAIL", 31),
    Status.INVALID: ("INVALID", 33),
    Status.ERROR: ("ERROR", 31),
    Status.SKIPPED: ("SKIP", 36),
}


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    cells: tuple[str, ...]
    right: bool = True
    is_id: bool = False
    is_metric: bool = False
    is_parameter: bool = False

    @property
    def width(self) -> int:
        return max(len(cell) for cell in (self.name, *self.cells))

    def aligned(self, cell: str) -> str:
        return cell.rjust(self.width) if self.right else cell.ljust(self.width)


def summary_lines(records: Sequence[Record], *, width: int = 100, colour: bool = False) -> list[str]:
    """Return the tables and the reasons as lines of at most ``width`` columns (as far as numbers allow).

    Rows are sorted by target, variant and case, tables by the first workload in them. No records: no lines.
    """
    rows = sorted(records, key=lambda record: (record.run.target, record.run.variant, case_text(record.run)))
    lines: list[str] = []
    for headline in _headlines(rows):
        alike = [record for record in rows if record.run.headline == headline]
        lines += [*([""] if lines else []), *_table(alike, headline, width=width, colour=colour)]
    return [
        *lines,
        *_client_groups(rows, width=width),
        *_searches(rows, width=width),
        *_reasons(rows, width=width, colour=colour),
    ]


def _headlines(rows: Sequence[Record]) -> list[tuple[str, ...]]:
    """Return the headlines of ``rows``, the default one first."""
    first: dict[tuple[str, ...], str] = {}
    for record in rows:
        first.setdefault(record.run.headline, record.run.workload)
    return sorted(first, key=lambda headline: (headline != HEADLINE, first[headline]))


def _table(rows: Sequence[Record], headline: Sequence[str], *, width: int, colour: bool) -> list[str]:
    columns = _columns(rows, headline)
    if _width(columns) <= width:
        return _one_line_each(rows, columns, colour=colour)
    numbers = _fit([column for column in columns if not column.is_id], width - len(_INDENT))
    heading, rule, *lines = _one_line_each(rows, numbers, colour=colour)
    table = ["variant  case", f"{_INDENT}{heading}", f"{_INDENT}{rule}"]
    for record, line in zip(rows, lines, strict=True):
        table += [*_wrapped(f"{record.run.variant}  {case_text(record.run)}", width), f"{_INDENT}{line}"]
    return table


def _one_line_each(rows: Sequence[Record], columns: Sequence[_Column], *, colour: bool) -> list[str]:
    """Return the heading, a rule and a line for each row; the last column is the verdict."""
    heading = _line(column.aligned(column.name) for column in columns)
    lines = [heading, "-" * len(heading)]
    for index, record in enumerate(rows):
        cells = [column.aligned(column.cells[index]) for column in columns]
        cells[-1] = _painted(cells[-1].rstrip(), record.status, colour=colour)
        lines.append(_line(cells))
    return lines


def _columns(rows: Sequence[Record], headline: Sequence[str]) -> list[_Column]:
    values = [metric_values(record) for record in rows]
    return [
        _Column("variant", tuple(record.run.variant for record in rows), right=False, is_id=True),
        _Column("case", tuple(_short_case(record.run) for record in rows), right=False, is_id=True),
        *_parameters(rows),
        *_clients(rows),
        *(_number(name, [value.get(name) for value in values]) for name in headline),
        _Column("verdict", tuple(_word(record) for record in rows), right=False),
    ]


def _short_case(run: Run) -> str:
    """Return the case without the parameters that have columns."""
    shown = set()
    for name in _PARAMETERS.keys() & run.parameters.keys():
        value = run.parameters[name]
        text = parameter_text(name, value)
        shown |= {f"{name}={value}", f"{name}={text}", *([text] if name.endswith("size") else [])}
    return " ".join(word for word in case_text(run).split(" ") if word not in shown)


def _parameters(rows: Sequence[Record]) -> list[_Column]:
    """Return the columns of the parameters that the rows have; one job each is not shown."""
    columns = []
    for name, heading in _PARAMETERS.items():
        values = [record.run.parameters.get(name) for record in rows]
        if all(value is None or (name == "jobs" and value == 1) for value in values):
            continue
        percent = "%" * name.endswith("percent")
        cells = tuple("-" if value is None else parameter_text(name, value) + percent for value in values)
        columns.append(_Column(heading, cells, is_parameter=True))
    return columns


def _number(metric: str, values: Sequence[MetricValue | None]) -> _Column:
    heading, text = _HEADINGS.get(metric, (metric, short))
    return _Column(heading, tuple(text(value) for value in values), is_metric=True)


def _clients(rows: Sequence[Record]) -> list[_Column]:
    """Return the column with the number of clients, if there are runs on several clients."""
    starts = [
        next(filter(None, (sample.concurrency for sample in record.run.samples)), None) for record in rows
    ]
    counts = tuple(str(len(start.members) if start else 1) for start in starts)
    return [_Column("clients", counts)] if any(starts) else []


def _word(record: Record) -> str:
    """Return the verdict; what passed without any gate has only been measured."""
    if record.status is Status.PASSED and not record.verdicts:
        return "no gate"
    return _WORDS_AND_COLOURS[record.status][0]


def _fit(columns: list[_Column], width: int) -> list[_Column]:
    numbers = [column for column in columns if column.is_metric]
    parameters = [column for column in columns if column.is_parameter]
    for dropped in (*reversed(parameters), *reversed(numbers[1:-1]), *numbers[1:][-1:]):  # rule 2
        if _width(columns) <= width:
            break
        columns = [column for column in columns if column is not dropped]
    return columns


def _width(columns: Sequence[_Column]) -> int:
    return sum(column.width + _GAP for column in columns) - _GAP


def _line(cells: Iterable[str]) -> str:
    return (" " * _GAP).join(cells).rstrip()


def _painted(word: str, status: Status, *, colour: bool) -> str:
    return f"\x1b[{_WORDS_AND_COLOURS[status][1]}m{word}\x1b[0m" if colour else word


def _client_groups(rows: Sequence[Record], *, width: int) -> list[str]:
    """Return a line for each case on many clients: the spread of their start times, and the outliers."""
    lines: list[str] = []
    for record in rows:
        starts = [sample.concurrency for sample in record.run.samples if sample.concurrency is not None]
        if not starts:
            continue
        spreads = [start.spread for start in starts if start.spread is not None]
        began = f"began within {format_duration(max(spreads))}" if spreads else "began at unknown times"
        outliers = dict.fromkeys(name for start in starts for name in start.outliers)
        outlier_text = f"; unlike the others: {', '.join(outliers)}" if outliers else ""
        run = record.run
        clients = f"{len(starts[0].members)} clients ({run.client})"
        text = f"{run.variant}, {case_text(run)}: {clients} {began}{outlier_text}"
        lines += _wrapped(text, width)
    return ["", *lines] if lines else []


def _searches(rows: Sequence[Record], *, width: int) -> list[str]:
    """Return the maximum and the bottleneck of each case that searched for a maximum."""
    lines: list[str] = []
    for record in rows:
        search = next(filter(None, (sample.evidence.get("search") for sample in record.run.samples)), "")
        for text in search.splitlines()[:2]:
            lines += _wrapped(f"{record.run.variant}, {text}", width)
    return ["", *lines] if lines else []


def _reasons(rows: Sequence[Record], *, width: int, colour: bool) -> list[str]:
    lines: list[str] = []
    for record in rows:
        reasons = record.reasons or record.insensitive
        if not reasons:
            continue
        run = record.run
        word = _painted(_word(record), record.status, colour=colour)
        lines += ["", f"{word} {run.variant} on {run.client}: {case_text(run)}"]
        for reason in reasons:
            for paragraph in reason.splitlines():
                lines += _wrapped(paragraph, width, indent="    ")
    return lines


def _wrapped(text: str, width: int, *, indent: str = "") -> list[str]:
    """Return ``text`` as lines; ids with hyphens are not divided."""
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
