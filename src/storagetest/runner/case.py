"""One case from fill to verdict: the only place that knows the order of its steps.

1. versions of the client's kernel and tools (once a client);
2. fill the data set (once an attachment);
3. measure ``repeats`` times;
4. judge; while a gate is undecided, more repeats may decide it and ``max_repeats`` is not reached, measure
   once more and judge again.

Durations are by the monotonic clock; the wall clock only says when the run started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from storagetest.config.base import WorkloadOptions
from storagetest.measure.run import Run, Sample
from storagetest.protocols.base import Attachment
from storagetest.runner.fills import FillCache
from storagetest.runner.versions import Versions
from storagetest.verdict import Plan, Threshold, Verdict, judge, wants_more
from storagetest.workloads.base import Scale, Workload

__all__ = ["Case", "Phase", "Progress", "run_case"]


@dataclass(frozen=True, slots=True)
class Case:
    """Whose run it is: the words that identify it in every report."""

    case: str
    workload: str
    target: str
    variant: str
    protocol: str
    client: str
    profile: str = ""


class Phase(Enum):
    """What a case is doing."""

    FILL = "fill"
    MEASURE = "measure"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Progress:
    """What begins now: repeat ``repeat`` (from 1) of ``of``, for about ``expected`` seconds (None: unknown).

    ``of`` grows while a gate stays undecided. ``elapsed`` counts from the start of the case.
    """

    case: Case
    phase: Phase
    elapsed: float
    repeat: int = 0
    of: int = 0
    expected: float | None = None


_VERSIONS = Versions()


def run_case(
    workload: Workload[Any],
    options: WorkloadOptions,
    attachment: Attachment,
    scale: Scale,
    *,
    repeats: int,
    max_repeats: int,
    gates: Sequence[Threshold],
    case: Case,
    fills: FillCache,
    confidence: float = 0.99,
    plan: Plan | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[Run, tuple[Verdict, ...]]:
    """Measure ``workload`` on ``attachment`` and judge it; the verdicts are in the order of ``gates``.

    Raises :class:`~storagetest.errors.WorkloadError` and what the attachment's client raises, and
    :class:`~storagetest.errors.ConfigError` for a gate on a metric that the workload does not measure.
    """
    began = time.monotonic()

    def tell(phase: Phase, repeat: int = 0, of: int = 0, expected: float | None = None) -> None:
        if on_progress is not None:
            on_progress(Progress(case, phase, time.monotonic() - began, repeat, of, expected))

    started = time.time()
    versions = _VERSIONS.of(attachment.client, workload.tools)
    dataset = workload.dataset(options, scale)
    if dataset is not None:

        def fill() -> None:
            tell(Phase.FILL)
            workload.fill(attachment, options, scale)

        fills.once(attachment, dataset, fill)

    def measure(samples: tuple[Sample, ...], of: int) -> tuple[Sample, ...]:
        tell(Phase.MEASURE, len(samples) + 1, of, scale.ramp + scale.runtime)
        return (*samples, workload.measure(attachment, options, replace(scale, repeat=len(samples))))

    samples: tuple[Sample, ...] = ()
    for _ in range(max(1, repeats)):
        samples = measure(samples, repeats)
    run = Run(
        case=case.case,
        workload=case.workload,
        target=case.target,
        variant=case.variant,
        protocol=case.protocol,
        client=case.client,
        title=workload.title(options),
        parameters=workload.parameters(options),
        negotiated=attachment.negotiated,
        samples=samples,
        started=started,
        profile=case.profile,
        versions=versions,
        metrics=workload.metrics,
    )
    verdicts = _judge(run, gates, confidence, plan)
    while wants_more(run, verdicts, max_repeats=max_repeats, plan=plan):
        run = replace(run, samples=measure(run.samples, len(run.samples) + 1))
        verdicts = _judge(run, gates, confidence, plan)
    tell(Phase.DONE, len(run.samples), len(run.samples))
    return run, verdicts


def _judge(run: Run, gates: Sequence[Threshold], confidence: float, plan: Plan | None) -> tuple[Verdict, ...]:
    return tuple(judge(run, gate, confidence=confidence, plan=plan) for gate in gates)
