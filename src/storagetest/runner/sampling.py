"""Counters beside a case: the agent samples on the client and, where there is one, on the server.

Theory. One sampler a machine runs for the whole of a case, from before its first repeat to after its last, in
a thread of ours that waits for it. It says its process id when it begins and everything else when it ends, so
it sends nothing while load runs, unless somebody watches (:mod:`storagetest.runner.throughput_watch`). It is ended by a
signal, and says when by its own clock that came; from this and from when we sent it follows how far the
clocks of client, server and controller are apart, to half a round trip. So all series have one time axis:
seconds since the measuring began, by the client's clock.

Rules:

1. Sampling never harms a case: a machine without python3, or one that went away, is a note in the evidence.
2. However a case ends, its samplers are ended: told to by us, and by themselves when nobody reads them any
   more.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from storagetest.concurrency import run_concurrently
from storagetest.counters.base import Snapshot, all_sources, to_series
from storagetest.errors import StoragetestError, WorkloadError
from storagetest.hosts.base import Host
from storagetest.measure.run import Sample
from storagetest.measure.series import Series, cut
from storagetest.runner.throughput_watch import ThroughputWatch
from storagetest.workloads._agent.run import run_agent, terminate_agent

__all__ = ["CounterSampling", "SampleResult", "align_series"]

_LONGEST = 24 * 3600.0
_START = 5.0
_TELL, _END, _IN_VAIN = 5.0, 10.0, 1.0


@dataclass(frozen=True, slots=True)
class SampleResult:
    """What one machine's sampler brought.

    ``clock`` is what the machine's clock (seconds since the epoch) was ahead of ours (``time.monotonic``).
    ``moments`` are in the machine's clock. ``cost`` is the share of a core that sampling took. ``note`` says
    why there is nothing, if so.
    """

    host: str
    moments: tuple[Snapshot, ...] = ()
    clock: float = 0.0
    cost: float = 0.0
    note: str = ""


@dataclass
class _Sampler:
    """One machine's sampler and the thread that waits for it."""

    host: Host
    interval: float
    watch: ThroughputWatch | None = None
    answer: Mapping[str, Any] | None = None
    note: str = ""
    pid: int | None = None
    unwanted: bool = False
    begun: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name=f"sampling-{self.host.name}", daemon=True)
        self.thread.start()

    def stop(self) -> SampleResult:
        assert self.thread is not None
        self.begun.wait(_START)
        middle = None
        if self.pid is not None and self.thread.is_alive():  # so the process is there, and the id its own
            with suppress(StoragetestError):
                middle = self._tell_to_end(self.pid)
        self.unwanted = self.pid is None
        told = middle is not None or self.pid is None
        self.thread.join(_END if told else _IN_VAIN)
        if self.thread.is_alive():
            return SampleResult(self.host.name, note="the sampler did not end when it was told to")
        if self.answer is None:
            return SampleResult(self.host.name, note=self.note or "the sampler gave no answer")
        return _read(self.host.name, self.answer, middle)

    def _tell_to_end(self, pid: int) -> float:
        """Return the middle of the round trip, by our own clock."""
        before = time.monotonic()
        terminate_agent(self.host, pid, deadline=_TELL)
        return (before + time.monotonic()) / 2

    def _run(self) -> None:
        request: dict[str, Any] = {
            "command": "sample_counters",
            "path": "its counters",
            "interval": self.interval,
            "paths": [path for source in all_sources() for path in source.paths],
            "lines": {path: starts for source in all_sources() for path, starts in source.lines.items()},
        }
        if self.watch is not None:
            request["live"] = self.watch.request
        try:
            self.answer = run_agent(self.host, request, deadline=_LONGEST, on_line=self._hear).more
        except StoragetestError as error:
            self.note = str(error)
        except Exception as error:  # a thread's exception would be lost, and the case must not be
            self.note = f"{type(error).__name__}: {error}"
        finally:
            self.begun.set()

    def _hear(self, line: str) -> None:
        if self.unwanted:
            raise WorkloadError("it began only after the case had ended")  # which ends it
        if self.pid is None and '"pid"' in line:
            with suppress(ValueError, KeyError, TypeError):
                self.pid = int(json.loads(line)["pid"])
                self.begun.set()
        elif self.watch is not None and '"now"' in line:
            with suppress(ValueError):
                self.watch.hear(json.loads(line))


class CounterSampling:
    """Samplers on ``hosts``, from :meth:`start` to :meth:`stop`. With interval 0 there is none.

    ``watch`` is told what moves on the first of the hosts, the client.
    """

    def __init__(
        self, hosts: Sequence[Host], interval: float, *, watch: ThroughputWatch | None = None
    ) -> None:
        unique = list({host.name: host for host in hosts}.values()) if interval > 0 else []
        self._samplers = [_Sampler(host, interval, None if n else watch) for n, host in enumerate(unique)]

    def start(self) -> None:
        """Start the samplers; nobody waits for them to begin."""
        for sampler in self._samplers:
            sampler.start()

    def stop(self) -> tuple[SampleResult, ...]:
        """End the samplers, all at once, and return what they brought, in the order of the hosts.

        What was not started, or has been stopped, brings nothing.
        """
        samplers, self._samplers = [one for one in self._samplers if one.thread is not None], []
        return tuple(run_concurrently(_Sampler.stop, samplers, at_once=len(samplers), name="stop-sampler"))


def align_series(
    samples: Sequence[Sample], called: Sequence[float], sampled: Sequence[SampleResult], interval: float
) -> tuple[Sample, ...]:
    """Return ``samples`` with the series of what was sampled meanwhile.

    ``called`` is when each measuring was asked for by our own monotonic clock; it stands in where a workload
    cannot say when its measuring began. The first of ``sampled`` is the client's: its clock is the samples'.
    """
    if not sampled:
        return tuple(samples)
    client = sampled[0]
    begins = [
        at if sample.began is None or not client.clock else sample.began - client.clock
        for sample, at in zip(samples, called, strict=True)
    ]
    windows = [
        (began - interval, began + sample.seconds + interval)
        for began, sample in zip(begins, samples, strict=True)
    ]
    every = [series for one in sampled for series in _series(one, windows, 2 * interval + 1.0)]
    made = []
    for sample, began, window in zip(samples, begins, windows, strict=True):
        seen = (_since(began, series) for series in cut(every, *window))
        made.append(
            replace(sample, series=(*sample.series, *seen), evidence={**sample.evidence, **_notes(sampled)})
        )
    return tuple(made)


def _series(one: SampleResult, windows: Sequence[tuple[float, float]], margin: float) -> tuple[Series, ...]:
    """Return one machine's series, by our own clock, in all ``windows`` and ``margin`` seconds around each.

    Each moment is read once, however many windows it is near to: reading is what takes time here. A point
    that spans the time between two windows lies in neither.
    """
    if not one.clock:
        return ()
    near = [
        Snapshot(moment.time - one.clock, moment.texts)
        for moment in one.moments
        if any(since - margin <= moment.time - one.clock <= until + margin for since, until in windows)
    ]
    return tuple(series for source in all_sources() for series in to_series(source, one.host, near))


def _since(began: float, series: Series) -> Series:
    """Return it in seconds since ``began``, with milliseconds and six digits: results are kept for ever."""
    return replace(
        series,
        times=tuple(round(at - began, 3) for at in series.times),
        values=tuple(float(f"{value:.6g}") for value in series.values),
    )


def _notes(sampled: Sequence[SampleResult]) -> dict[str, str]:
    lines = [
        f"{one.host}: not sampled: {one.note}" if one.note else f"{one.host}: took {one.cost:.2%} of a core"
        for one in sampled
    ]
    return {"sampling": "\n".join(lines)}


def _read(host: str, answer: Mapping[str, Any], middle: float | None) -> SampleResult:
    """Return what a sampler's answer says, which was told to end at ``middle`` by our clock.

    One that cannot be read is a note.
    """
    try:
        clock = 0.0 if middle is None else float(answer["stopped"]) - middle
        lines = zlib.decompress(base64.b64decode(answer["data"])).splitlines()
        moments, texts = [], dict[str, str]()
        for line in lines:
            at, changed = json.loads(line)
            texts = {path: text for path, text in {**texts, **changed}.items() if text is not None}
            moments.append(Snapshot(float(at) + float(answer["wall"]), texts))
        span = float(answer["span"])
        cost = float(answer["cost"]) / span if span > 0 else 0.0
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        return SampleResult(host, note=str(WorkloadError(f"the sampler's answer cannot be read: {error}")))
    return SampleResult(host, tuple(moments), clock, cost)
