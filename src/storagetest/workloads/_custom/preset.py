"""A custom workload from a registered one: its name, with parameters from the targets file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError, create_model, model_validator

from storagetest.config.base import WorkloadOptions
from storagetest.config.custom_workloads import CustomWorkloadEntry
from storagetest.config.validation import first_message
from storagetest.errors import ConfigError
from storagetest.workloads._custom.base import CustomWorkload, register
from storagetest.workloads.base import Workload, workloads


@register
class PresetWorkload(CustomWorkload):
    """Makes subclasses of the registered workload that an entry names, whose options begin with its own."""

    name = "load"

    @classmethod
    def define(
        cls,
        name: str,
        entry: CustomWorkloadEntry,
        directory: Path,  # noqa: ARG003  # it reads no file
        place: str,
    ) -> type[Workload[Any]]:
        """Return the workload; see :class:`CustomWorkload`."""
        try:
            base = workloads.get(entry.load or "")
            given = dict(entry.parameters)
            base.Options.model_validate(given)
        except ConfigError as error:
            raise ConfigError(str(error), place=place) from None
        except ValidationError as error:
            raise ConfigError(f"{entry.load}: {first_message(error)}", place=place) from None
        members = {
            "__doc__": f"{entry.load} with the parameters of the targets file. {base.__doc__}",
            "__module__": cls.__module__,
            "name": name,
            "Options": _with_parameters(base.Options, given),
        }
        return type(name, (base,), members)

    def measure(self, *_: object) -> Any:  # noqa: ANN401  # never called: define returns another class
        """Raise NotImplementedError."""
        raise NotImplementedError


def _with_parameters(options: type[WorkloadOptions], given: Mapping[str, Any]) -> type[WorkloadOptions]:
    """Return a subclass of ``options`` that has the parameters ``given`` unless a case sets others."""

    def merge(data: object) -> object:
        return {**given, **data} if isinstance(data, Mapping) else data

    validators: dict[str, Any] = {"_given_first": model_validator(mode="before")(merge)}
    return create_model("Options", __base__=options, __doc__=options.__doc__, __validators__=validators)
