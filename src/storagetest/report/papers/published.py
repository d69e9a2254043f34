"""Published experiments as data: ``suites/papers/*.toml``, with their tables, figures and claims.

A measured value is named by side, point and metric: the *side* is a target in its role (``iscsi``), the
*point* one load of the experiment (``read 64KiB``).
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from storagetest.errors import ResultError
from storagetest.installed_suites import SUITES
from storagetest.units import format_size

DIRECTORY = SUITES / "papers"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Value(_Model):
    """One measured value."""

    side: str
    point: str
    metric: str


class Claim(_Model):
    """A published claim, as a comparison: left ``gate`` right."""

    id: str
    text: str
    """The claim in the publication's sense."""

    published: str = ""
    """The published ratio, if there is one."""

    left: Value | None = None
    right: Value | None = None
    gates: Annotated[tuple[tuple[Literal[">=", "<="], float], ...], Field(max_length=2)] = ((">=", 1.0),)
    """Left must be so much of right; two gates bound it on both sides."""

    because: str = ""
    """Why no rerun can measure it; then it has no sides."""

    @model_validator(mode="after")
    def _is_complete(self) -> Claim:
        if bool(self.because) == (self.left is not None) or (self.left is None) != (self.right is None):
            raise ValueError(f"claim {self.id}: give left and right, or because")
        return self


class TableColumn(_Model):
    """A column of a table; its point and metric are those of its cells, unless a row has them."""

    head: str
    point: str = ""
    metric: str = ""


class PublishedRow(_Model):
    """A row of published values as printed, and the side (and point, metric) that is measured for it."""

    name: str
    published: tuple[str, ...] = ()
    side: str = ""
    point: str = ""
    metric: str = ""


class Table(_Model):
    """A published table."""

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[PublishedRow, ...]

    @model_validator(mode="after")
    def _is_rectangular(self) -> Table:
        for row in self.rows:
            if row.published and len(row.published) != len(self.columns):
                raise ValueError(f"table {self.title!r}, row {row.name!r}: {len(row.published)} values")
        return self


class PublishedLine(_Model):
    """A line of a figure: points (x, y) in base units."""

    name: str
    points: tuple[tuple[float, float], ...]


class MeasuredLine(_Model):
    """A line of measured values: ``{x}`` and ``{size}`` in point and metric stand for each x."""

    name: str
    side: str
    point: str
    metric: str
    x: tuple[float, ...]

    def values(self) -> list[tuple[float, Value]]:
        """Return each x with its value."""

        def at(text: str, x: float) -> str:
            return text.replace("{x}", f"{x:g}").replace("{size}", format_size(int(x)))

        return [
            (x, Value(side=self.side, point=at(self.point, x), metric=at(self.metric, x))) for x in self.x
        ]


class FigureAxis(_Model):
    """Title and base unit of an axis: ``B``, ``s``, ``B/s``, ``/s``, or empty for a number."""

    title: str
    unit: str = ""
    log: bool = False


class Figure(_Model):
    """A published figure. ``model`` adds the curve of that many clients by a queueing model."""

    title: str
    x: FigureAxis
    y: FigureAxis
    published: tuple[PublishedLine, ...] = ()
    measured: tuple[MeasuredLine, ...] = ()
    model: int = 0
    note: str = ""


class Experiment(_Model):
    """One published experiment."""

    id: str
    title: str
    source: str
    setup: str
    """What was measured, as published."""

    rerun: str
    """How the rerun measures it, and what differs."""

    emulation: str
    """What an emulated lab cannot show of it."""

    sides: dict[str, str]
    """Side → its name on the page."""

    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    timelines: tuple[str, ...] = ()
    """Points of which the page draws what was sampled during the first repeat."""

    claims: tuple[Claim, ...] = ()


def experiment(name: str) -> Experiment:
    """Return the experiment in ``suites/papers/NAME.toml``. Raises :class:`ResultError`."""
    return _read(DIRECTORY / f"{name}.toml")


def experiments() -> list[Experiment]:
    """Return all experiments, by their ids. Raises :class:`ResultError`."""
    return [_read(path) for path in sorted(DIRECTORY.glob("*.toml"))]


@cache
def _read(path: Path) -> Experiment:
    try:
        return Experiment.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise ResultError(f"{path}: {error}") from None
