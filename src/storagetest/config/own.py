"""The ``workloads`` section: loads of the user's own, each a fio job file or a Python function.

    workloads:
      my-oltp: {fio: jobs/oltp.fio}
      my-restore: {python: "restore:run", metrics: {seconds: {unit: s, better: lower}}}

What comes out are classes like those that are registered; the registry adopts them, so that thresholds,
comparisons and cases find them as they find any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Items, LocalPath, Model
from storagetest.config.validation import ValidationErrors
from storagetest.config.yaml_source import Node
from storagetest.errors import ConfigError

if TYPE_CHECKING:
    from storagetest.workloads.base import Workload

__all__ = ["OwnWorkload", "OwnWorkloads", "read_own"]

OwnWorkloads = Mapping[str, "type[Workload[Any]]"]

_METRIC = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)


class OwnMetric(Model):
    """What a figure means that a Python function returns."""

    unit: Literal["B/s", "/s", "s", "ratio", "count"]
    """The base unit that the function returns it in."""

    better: Literal["higher", "lower"]
    """Which way is good."""


class OwnWorkload(Model):
    """A load of the user's own: `fio` or `python`."""

    fio: LocalPath | None = None
    """A fio job file. Where the load goes, how much and how long are not its to say."""

    python: Annotated[str | None, Field(min_length=3)] = None
    """A Python function, package.module:function, called with (attachment, scale)."""

    metrics: Mapping[str, OwnMetric] | None = None
    """What the function returns, the most telling first; those of an I/O workload where this is left out."""

    needs: Items[str] = ()
    """What a target must have for the function: filesystem, block, …"""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.fio is None) == (self.python is None):
            raise ValueError("give either fio: a job file, or python: package.module:function")
        if self.fio is not None and (self.metrics is not None or self.needs):
            raise ValueError("metrics and needs belong to python: a job file's metrics are known")
        for name in self.metrics or ():
            if not _METRIC.fullmatch(name):
                raise ValueError(f"metrics: {name!r} is no name: a letter, then letters, digits, _ . and -")
        return self


def read_own(node: Node | None, directory: Path, problems: ValidationErrors) -> OwnWorkloads:
    """Return the workloads that the section names, adopted by the registry; what is wrong with them is noted.

    ``directory`` is the targets file's.
    """
    from storagetest.workloads.base import workloads  # noqa: PLC0415  # workloads build on config.base

    found: dict[str, type[Workload[Any]]] = {}
    for name, entry in problems.mapping(node, "workloads").items() if node is not None else ():
        where = f"workloads.{name}"
        problems.check_name(name, entry, where)
        if name in workloads.registered():
            problems.add(
                entry.key_place, f"{where}: there is a workload of that name already: choose another"
            )
            continue
        read = problems.validate(OwnWorkload, entry, where)
        if read is None:
            continue
        try:
            found[name] = _make(name, read, directory, entry)
        except ConfigError as error:
            problems.add_error(error, entry.place)
    workloads.adopt(found)
    return found


def _make(name: str, read: OwnWorkload, directory: Path, node: Node) -> type[Workload[Any]]:
    # Only who has loads of their own pays for these.
    if read.fio is not None:
        from storagetest.workloads._own.fio import fio_workload  # noqa: PLC0415

        return fio_workload(name, read.fio, (node.child("fio") or node).place)
    from storagetest.measure.run import METRICS, Better, Metric, Unit  # noqa: PLC0415
    from storagetest.workloads._own.python import python_workload  # noqa: PLC0415

    metrics: Mapping[str, Metric] = METRICS
    if read.metrics is not None:
        metrics = {
            key: Metric(key, Unit(said.unit), Better(said.better)) for key, said in read.metrics.items()
        }
    place = (node.child("python") or node).place
    return python_workload(name, read.python or "", directory, metrics, frozenset(read.needs), place)
