"""The ``workloads`` section: custom workloads: a fio job file, a Python function, or a preset.

    workloads:
      my-oltp: {fio: jobs/oltp.fio}
      my-restore: {python: "restore:run", metrics: {seconds: {unit: s, better: lower}}}
      my-blocks: {load: sweep, parameters: {over: block_size, direction: write}}

The results are classes like the registered ones. They belong to the configuration that defines them: two
targets files in one process do not share them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Items, LocalPath, Model
from storagetest.config.kinds import WorkloadKind
from storagetest.config.validation import ValidationErrors
from storagetest.config.yaml_source import YamlNode
from storagetest.errors import ConfigError
from storagetest.registry import get_registry

CUSTOM_WORKLOADS = "storagetest.workloads._custom"
"""The registry of the kinds of custom workloads; a kind's name is its key in an entry."""

_METRIC = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)


class CustomMetric(Model):
    """A metric that a Python function returns."""

    unit: Literal["B", "B/s", "/s", "s", "ratio", "count"]
    """The base unit that the function returns it in. A `ratio` is a share from 0 to 1."""

    better: Literal["higher", "lower"]
    """Which way is good."""


class CustomWorkloadEntry(Model):
    """A custom workload: `fio`, `python` or `load`."""

    fio: LocalPath | None = None
    """A fio job file. It must not set location, size and duration of the load: storagetest sets them."""

    python: Annotated[str | None, Field(min_length=3)] = None
    """A Python function, package.module:function, called with (attachment, scale)."""

    load: Annotated[str | None, Field(min_length=1)] = None
    """A workload of storagetest or of a package, which gets another name and `parameters`."""

    parameters: Mapping[str, Any] = Field(default_factory=dict)
    """Parameters of `load`."""

    metrics: Mapping[str, CustomMetric] | None = None
    """The metrics that the function returns, the most important first; default: those of an I/O workload."""

    needs: Items[str] = ()
    """The capabilities of a target that the function needs: filesystem, block, …"""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(each is not None for each in (self.fio, self.python, self.load)) != 1:
            raise ValueError(
                "give one of fio: a job file, python: package.module:function, and load: a workload"
            )
        if self.python is None and (self.metrics is not None or self.needs):
            raise ValueError("metrics and needs belong to python: those of others are known")
        if self.load is None and self.parameters:
            raise ValueError("parameters belong to load: a workload of storagetest")
        for name in self.metrics or ():
            if not _METRIC.fullmatch(name):
                raise ValueError(
                    f"metrics: invalid name {name!r}: expected a letter, then letters, digits, _ . and -"
                )
        return self

    @property
    def kind(self) -> str:
        """The key of the kind of workload: ``fio``, ``python`` or ``load``."""
        return next(kind for kind in ("fio", "python", "load") if getattr(self, kind) is not None)


def read_custom_workloads(
    node: YamlNode | None, directory: Path, registered: Mapping[str, WorkloadKind], problems: ValidationErrors
) -> dict[str, WorkloadKind]:
    """Return the workloads that the section defines, by name; adds errors to ``problems``.

    ``directory`` is the targets file's.
    """
    found: dict[str, WorkloadKind] = {}
    for name, node_of in problems.mapping(node, "workloads").items() if node is not None else ():
        where = f"workloads.{name}"
        problems.check_name(name, node_of, where)
        if name in registered:
            message = f"{where}: there is a workload of that name already: choose another"
            problems.add(node_of.key_place, message)
            continue
        entry = problems.validate(CustomWorkloadEntry, node_of, where)
        if entry is None:
            continue
        place = (node_of.child(entry.kind) or node_of).place
        try:
            kind = get_registry(CUSTOM_WORKLOADS).get(entry.kind)
            found[name] = kind.define(name, entry, directory, place)
        except ConfigError as error:
            problems.add_error(error, node_of.place)
    return found
