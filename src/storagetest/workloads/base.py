"""Workload: base class of a load that runs on an attachment and returns samples.

A workload gets an :class:`~storagetest.protocols.base.Attachment` and a :class:`LoadSize` (from the profile).
It never reads targets.yaml and never judges a figure. The runner decides the order: ``fill`` once, then
``measure`` as often as a verdict needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from storagetest.config.base import WorkloadOptions
from storagetest.measure.cache import Cache
from storagetest.measure.run import HEADLINE, METRICS, Metric, Sample
from storagetest.protocols.base import Attachment, Capability
from storagetest.registry import Registry, get_registry


@dataclass(frozen=True, slots=True)
class StartBarrierRef:
    """The start barrier at which a load on one of many clients waits until all may start.

    A load process on the client waits at the barrier in ``directory`` (:mod:`storagetest.agent.barrier`),
    each time it starts. A load in the controller calls ``wait``, which returns at the start and raises
    :class:`~storagetest.errors.WorkloadError` if the start is cancelled. ``timeout`` is in seconds, in
    addition to the load's own time.
    """

    directory: str
    wait: Callable[[], None]
    timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class LoadSize:
    """Size of a load: ``size`` in bytes, ``ramp`` and ``runtime`` in seconds (the ramp is not counted).

    ``repeat`` counts from 0; random seeds depend on it, so that each repeat writes different data. The load
    records its rate every ``interval`` seconds (0: never). ``cold_size`` is the size of data read with cold
    caches (None: twice the larger memory of client and server). ``steady`` is the rule of steady state (see
    :mod:`storagetest.measure.steady_state`), which must hold within ``steady_rounds`` rounds before repeats
    count. The load continues uncounted for ``cooldown`` seconds after the runtime. With ``start``, the load
    waits for those of other clients when it is set up; it is that of client number ``client`` (from 0) of
    ``clients``.
    """

    size: int
    ramp: float
    runtime: float
    repeat: int = 0
    interval: float = 0.0
    cold_size: int | None = None
    steady: Literal["none", "pts", "slope"] = "none"
    steady_rounds: int = 25
    cooldown: float = 0.0
    start: StartBarrierRef | None = None
    client: int = 0
    clients: int = 1

    @property
    def start_timeout(self) -> float:
        """Timeout in seconds of waiting for other clients."""
        return self.start.timeout if self.start is not None else 0.0

    @property
    def barrier(self) -> str:
        """The client's directory of the start barrier; "" if the load does not wait."""
        return self.start.directory if self.start is not None else ""


O = TypeVar("O", bound=WorkloadOptions)  # noqa: E741  # options


class Workload(ABC, Generic[O]):
    """One kind of load. Subclasses are stateless; their parameters are the options."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[Capability]] = frozenset()
    """Capabilities without which the case is skipped."""

    Options: ClassVar[type[WorkloadOptions]]
    example: ClassVar[Mapping[str, Any]]
    metrics: ClassVar[Mapping[str, Metric]] = METRICS
    headline: ClassVar[tuple[str, ...]] = HEADLINE
    """Metrics that a summary shows: the most important first, the worst-case latency last."""

    source: ClassVar[str] = ""
    """Where the load is defined: a paper, a program, a manual page."""

    tools: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Programs that a client must have: name → the argv that prints its version, stored with every run."""

    synchronized: ClassVar[bool] = True
    """Whether it can wait for the loads of other clients, and so run on several at once."""

    counts_server_writes: ClassVar[bool] = False
    """Whether :meth:`with_server_writes` needs the write count of the server's devices."""

    def with_server_writes(self, sample: Sample, writes: int, where: str) -> Sample:  # noqa: ARG002
        """Return ``sample`` with metrics of the server's ``writes`` write operations (device: ``where``)."""
        return sample

    def parameters(self, options: O) -> Mapping[str, Any]:
        """Return the options as stored and shown in results, values with their units."""
        return options.model_dump()

    def title(self, options: O) -> str:
        """Return the name and the options that are set: ``sequential write 1MiB``."""
        fields = options.model_fields_set
        words = [_word(name, value) for name, value in self.parameters(options).items() if name in fields]
        return " ".join((self.name, *words))

    def capabilities(self, options: O) -> frozenset[Capability]:  # noqa: ARG002
        """Return the capabilities without which a case with ``options`` is skipped."""
        return self.needs

    def dataset(self, options: O, scale: LoadSize) -> str | None:  # noqa: ARG002
        """Return the key of the data set this load works on, or None. Equal keys are filled once."""
        return None

    def fill(self, attachment: Attachment, options: O, scale: LoadSize) -> None:
        """Write the whole data set, so that no hole is measured."""

    def cache(self, options: O) -> Cache | None:  # noqa: ARG002
        """Return the required state of the caches; the runner drops them for ``cold``."""
        return None

    def ceiling(self, attachment: Attachment, options: O, scale: LoadSize) -> float | None:  # noqa: ARG002
        """Measure the client's limit: I/Os per second of this load on a target that takes no time.

        None if this load cannot measure it. Raises :class:`~storagetest.errors.WorkloadError`.
        """
        return None

    def is_timed(self, options: O) -> bool:  # noqa: ARG002
        """Whether a repeat ends with its runtime, so that a longer one has more I/Os."""
        return True

    @abstractmethod
    def measure(self, attachment: Attachment, options: O, scale: LoadSize) -> Sample:
        """Run ramp and runtime once. Raises :class:`~storagetest.errors.WorkloadError`."""


def _word(name: str, value: object) -> str:
    """Return text unchanged (``read``, ``4KiB``); a number or a switch with its name."""
    return value if isinstance(value, str) else f"{name}={value}"


workloads: Registry[Workload[Any]] = get_registry("storagetest.workloads")
register = workloads.register
