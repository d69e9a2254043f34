"""What a workload is: a load that is put on an attachment, and the samples it yields. No
opinion, no YAML file.

A workload is told *where* (an :class:`~storagetest.protocols.base.Attachment`) and *how much* (a
:class:`LoadSize`, from the profile). It never reads targets.yaml and never decides whether a figure is good.
The runner owns the order of things: ``fill`` once, then ``measure`` as often as a verdict needs.
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

__all__ = ["LoadSize", "StartBarrierRef", "Workload", "register", "workloads"]


@dataclass(frozen=True, slots=True)
class StartBarrierRef:
    """The start barrier at which a load on one of many clients waits until all may start.

    A load that runs on the client waits at the barrier in the directory ``place`` there
    (:mod:`storagetest.agent.barrier`), each time that it starts. One that runs here calls ``arrive``, which
    returns at the start. ``patience`` is the timeout in seconds on top of the load's own time. ``arrive``
    raises :class:`~storagetest.errors.WorkloadError` if the start is called off.
    """

    directory: str
    wait: Callable[[], None]
    timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class LoadSize:
    """How much: ``size`` in bytes, ``ramp`` and ``runtime`` in seconds (a ramp is run but not counted).

    ``repeat`` counts from 0. Random seeds follow from it, so that no repeat writes what another did. Every
    ``interval`` seconds the load notes how it is doing (0: it does not). ``cold_size`` is the size for what
    is read with cold caches (None: twice the memory of client or server, whichever has more). ``steady`` is
    the rule by which the target has to settle before anything counts (see
    :mod:`storagetest.measure.steady_state`), within ``steady_rounds`` rounds. For ``cooldown`` seconds after
    the runtime load goes on and is not counted. With ``start`` the load, set up and ready, waits for those of
    other clients.
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

    @property
    def start_timeout(self) -> float:
        """Timeout in seconds of waiting for other clients."""
        return self.start.timeout if self.start is not None else 0.0


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
    """The few of the metrics that a summary shows: the most telling first, how bad it gets last."""

    source: ClassVar[str] = ""
    """Where the load is defined: a paper, a program, a manual page."""

    tools: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Programs that a client must have: name → the argv that prints its version, kept with every run."""

    counts_server_writes: ClassVar[bool] = False
    """Whether :meth:`with_server_writes` wants to know what the server's devices write meanwhile."""

    def with_server_writes(self, sample: Sample, writes: int, where: str) -> Sample:  # noqa: ARG002
        """Return ``sample`` with what ``writes`` operations at the server's device ``where`` say."""
        return sample

    def parameters(self, options: O) -> Mapping[str, Any]:
        """Return the options as the result keeps and shows them, values with their units."""
        return options.model_dump()

    def title(self, options: O) -> str:
        """Return the name and what was asked for beyond the defaults: ``sequential write 1MiB``."""
        asked = options.model_fields_set
        words = [_word(name, value) for name, value in self.parameters(options).items() if name in asked]
        return " ".join((self.name, *words))

    def dataset(self, options: O, scale: LoadSize) -> str | None:  # noqa: ARG002
        """Return the key of the data set this load works on, or None. Equal keys are filled once."""
        return None

    def fill(self, attachment: Attachment, options: O, scale: LoadSize) -> None:
        """Write the data set fully, so that no hole is measured."""

    def cache(self, options: O) -> Cache | None:  # noqa: ARG002
        """Return the state of the caches that these options ask for; the runner drops them for ``cold``."""
        return None

    def ceiling(self, attachment: Attachment, options: O, scale: LoadSize) -> float | None:  # noqa: ARG002
        """Measure what the client does (I/Os per second) of this load on a target that takes no time.

        None: this load cannot tell. Raises :class:`~storagetest.errors.WorkloadError`.
        """
        return None

    @abstractmethod
    def measure(self, attachment: Attachment, options: O, scale: LoadSize) -> Sample:
        """Run ramp and runtime once. Raises :class:`~storagetest.errors.WorkloadError`."""


def _word(name: str, value: object) -> str:
    """A text says what it is by itself (``read``, ``4KiB``); a number or a switch needs its name."""
    return value if isinstance(value, str) else f"{name}={value}"


workloads: Registry[Workload[Any]] = get_registry("storagetest.workloads")
register = workloads.register
