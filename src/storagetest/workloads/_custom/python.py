"""A custom workload from a Python function.

The contract: ``function(attachment, scale)`` loads the attachment once, for about ``scale.runtime`` seconds
and with ``scale.size`` bytes, and leaves nothing outside ``attachment.path``. It returns a mapping of metric
→ number in the metric's base unit, or a :class:`~storagetest.measure.run.Sample`, which can also have
histograms (needed for gates on percentiles), evidence, and reasons why it is invalid. It is called once for
every repeat, with ``scale.repeat`` counting from 0, in the process that runs pytest; it runs commands on the
client by ``attachment.client``. An AssertionError is a failure of the target; any other exception is an
error of the case.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from storagetest.config.base import WorkloadOptions
from storagetest.config.custom_workloads import CustomWorkloadEntry
from storagetest.errors import ConfigError, StoragetestError, WorkloadError
from storagetest.measure.run import METRICS, Better, Metric, Sample
from storagetest.measure.unit import Unit
from storagetest.protocols.base import Attachment
from storagetest.workloads._custom.base import CustomWorkload, register
from storagetest.workloads.base import LoadSize


@register
class CustomPythonWorkload(CustomWorkload):
    """A workload that a Python function performs."""

    name = "python"
    synchronized = False
    function: ClassVar[Callable[[Attachment, LoadSize], object]]

    @classmethod
    def define(cls, name: str, entry: CustomWorkloadEntry, directory: Path, place: str) -> type[Self]:
        """Import the function, also from ``directory``; see :class:`CustomWorkload`."""
        reference = entry.python or ""
        metrics = dict(METRICS)
        if entry.metrics is not None:
            metrics = {
                key: Metric(key, Unit(metric.unit), Better(metric.better))
                for key, metric in entry.metrics.items()
            }
        return cls._subclass(
            name,
            f"Calls {reference}.",
            source=reference,
            metrics=metrics,
            headline=tuple(metrics)[:4],
            needs=frozenset(entry.needs),
            function=staticmethod(_function(reference, directory, place)),
        )

    def measure(self, attachment: Attachment, options: WorkloadOptions, scale: LoadSize) -> Sample:  # noqa: ARG002
        """Call the function once."""
        if scale.start is not None:
            scale.start.wait()
        began = time.monotonic()
        try:
            returned = type(self).function(attachment, scale)
        except (AssertionError, StoragetestError):
            raise
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise WorkloadError(
                f"{self.source} raised {type(error).__name__}: {error}\n  at {last.filename}:{last.lineno}"
            ) from error
        elapsed = time.monotonic() - began
        sample = returned if isinstance(returned, Sample) else self._sample(returned, elapsed)
        values: Mapping[str, object] = sample.values  # the function's types are not checked
        for name, value in values.items():
            if name not in self.metrics:
                known = ", ".join(self.metrics)
                raise WorkloadError(
                    f"{self.source} returned {name!r}, which is not one of its metrics: {known}"
                )
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise WorkloadError(f"{self.source} returned {name}={value!r}; expected a number")
            if reason := self.metrics[name].why_impossible(value):
                raise WorkloadError(f"{self.source} returned an impossible value: {reason}")
        if not values:
            raise WorkloadError(f"{self.source} returned no metric")
        return sample

    def _sample(self, returned: object, elapsed: float) -> Sample:
        if not isinstance(returned, Mapping):
            raise WorkloadError(
                f"{self.source} returned a {type(returned).__name__}; expected a mapping of metric → number "
                "or a storagetest.measure.run.Sample"
            )
        return Sample({str(name): value for name, value in returned.items()}, elapsed, ios=0)


def _function(reference: str, directory: Path, place: str) -> Callable[[Attachment, LoadSize], object]:
    module_name, colon, name = reference.partition(":")
    parts = [*module_name.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{reference!r}: expected package.module:function", place=place)
    sys.path.insert(0, str(directory))
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"{module_name} cannot be imported: {type(error).__name__}: {error}", place=place
        ) from error
    finally:
        sys.path.remove(str(directory))
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(f"{module_name} has no function {name}", place=place)
    function: Callable[[Attachment, LoadSize], object] = found
    return function
