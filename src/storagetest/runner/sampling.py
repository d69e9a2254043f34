"""Sample counters on the client, and on the server if it is a known host, while a case runs.

Theory. One agent per host samples for the whole case; a thread of the controller waits for it. It sends its
process id at the start and all samples at the end, so it sends nothing while the load runs, except for live
throughput (:mod:`storagetest.runner.throughput_watch`). A signal ends it, and it reports the time of that
signal by its own clock. That time and the time of sending give the offset between the clocks of client,
server and controller, to half a round trip. So all series have one time axis: seconds since the measuring
began, by the client's clock.

Sources may also read commands (:class:`~storagetest.counters.base.HostCommand`), on each host or once on the
controller, for a device that is no host. The controller is sampled only if there is such a source.

Rules:

1. Sampling never fails a case: a host without python3, or a lost host, is a note in the report.
2. Samplers end however a case ends: by the signal, or because their output is no longer read.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from storagetest.concurrency import run_concurrently
from storagetest.counters.base import Snapshot, all_sources, to_series
from storagetest.errors import StoragetestError, WorkloadError
from storagetest.hosts.base import Host
from storagetest.hosts.local import LocalHost
from storagetest.measure.run import Sample
from storagetest.measure.series import Series, cut
from storagetest.runner.throughput_watch import ThroughputWatch
from storagetest.workloads._agent.run import run_agent, terminate_agent

_LONGEST = 24 * 3600.0  # all timeouts are in seconds, chosen
_START = 5.0
_SIGNAL, _END, _ABANDON = 5.0, 10.0, 1.0


@dataclass(frozen=True, slots=True)
class SampleResult:
    """Samples of one host.

    ``clock`` is the offset of the host's clock (seconds since the epoch) from the controller's
    ``time.monotonic``. ``moments`` are by the host's clock. ``cost`` is the share of a core that sampling
    took. ``note`` is the reason if there are no samples.
    """

    host: str
    moments: tuple[Snapshot, ...] = ()
    clock: float = 0.0
    cost: float = 0.0
    note: str = ""


@dataclass
class _Sampler:
    """One host's sampler and the thread that waits for it."""

    host: Host
    interval: float
    watch: ThroughputWatch | None = None
    result: Mapping[str, Any] | None = None
    note: str = ""
    pid: int | None = None
    abandoned: bool = False
    on_controller: bool = False
    started: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, name=f"sampling-{self.host.name}", daemon=True)

    def stop(self) -> SampleResult:
        self.started.wait(_START)
        middle = None
        if self.pid is not None and self.thread.is_alive():  # the process exists, so the id is still its own
            with suppress(StoragetestError):
                middle = self._terminate(self.pid)
        self.abandoned = self.pid is None
        terminated = middle is not None or self.pid is None
        self.thread.join(_END if terminated else _ABANDON)
        if self.on_controller:
            self.host.close()
        if self.thread.is_alive():
            return SampleResult(self.host.name, note="the sampler did not end after SIGTERM")
        if self.result is None:
            return SampleResult(self.host.name, note=self.note or "the sampler gave no result")
        return _read(self.host.name, self.result, middle)

    def _terminate(self, pid: int) -> float:
        """Send SIGTERM to the sampler; return the middle of the round trip by the controller's clock."""
        before = time.monotonic()
        terminate_agent(self.host, pid, deadline=_SIGNAL)
        return (before + time.monotonic()) / 2

    def _run(self) -> None:
        sources = [source for source in all_sources() if source.on_controller is self.on_controller]
        request: dict[str, Any] = {
            "command": "sample_counters",
            "path": "its counters",
            "interval": self.interval,
            "paths": [path for source in sources for path in source.paths],
            "lines": {path: starts for source in sources for path, starts in source.lines.items()},
            "commands": {
                name: asdict(command) for source in sources for name, command in source.commands.items()
            },
        }
        if self.watch is not None:
            request["live"] = self.watch.request
        try:
            self.result = run_agent(self.host, request, deadline=_LONGEST, on_line=self._on_line).extra
        except StoragetestError as error:
            self.note = str(error)
        except Exception as error:  # an exception in a thread would be lost, and must not fail the case
            self.note = f"{type(error).__name__}: {error}"
        finally:
            self.started.set()

    def _on_line(self, line: str) -> None:
        if self.abandoned:
            raise WorkloadError("it started only after the case had ended")  # ends the agent
        if self.pid is None and '"pid"' in line:
            with suppress(ValueError, KeyError, TypeError):
                self.pid = int(json.loads(line)["pid"])
                self.started.set()
        elif self.watch is not None and '"now"' in line:
            with suppress(ValueError):
                self.watch.receive(json.loads(line))


class CounterSampling:
    """Samplers on ``hosts`` from :meth:`start` to :meth:`stop`; none if ``interval`` is 0.

    ``watch`` receives the throughput of the first host, the client.
    """

    def __init__(
        self, hosts: Sequence[Host], interval: float, *, watch: ThroughputWatch | None = None
    ) -> None:
        unique = list({host.name: host for host in hosts}.values()) if interval > 0 else []
        self._samplers = [_Sampler(host, interval, None if n else watch) for n, host in enumerate(unique)]
        if self._samplers and any(source.on_controller for source in all_sources()):
            self._samplers.append(_Sampler(LocalHost("controller"), interval, on_controller=True))

    def start(self) -> None:
        """Start the samplers, without waiting until they run."""
        for sampler in self._samplers:
            sampler.thread.start()

    def stop(self) -> tuple[SampleResult, ...]:
        """Stop all samplers at the same time, and return their results in the order of the hosts.

        Samplers that were not started, or are stopped already, have no result.
        """
        samplers, self._samplers = (
            [sampler for sampler in self._samplers if sampler.thread.ident is not None],
            [],
        )
        return tuple(run_concurrently(_Sampler.stop, samplers, at_once=len(samplers), name="stop-sampler"))


def align_series(
    samples: Sequence[Sample], starts: Sequence[float], sampled: Sequence[SampleResult], interval: float
) -> tuple[Sample, ...]:
    """Return ``samples`` with the series sampled during each.

    ``starts`` are the starts of the measurements by the controller's monotonic clock, if the workload does
    not report them. The first of ``sampled`` is that of the client, whose clock the samples use.
    """
    if not sampled:
        return tuple(samples)
    client = sampled[0]
    began_times = [
        at if sample.began is None or not client.clock else sample.began - client.clock
        for sample, at in zip(samples, starts, strict=True)
    ]
    windows = [
        (began - interval, began + sample.seconds + interval)
        for began, sample in zip(began_times, samples, strict=True)
    ]
    all_series = [series for result in sampled for series in _series(result, windows, 2 * interval + 1.0)]
    aligned = []
    for sample, began, window in zip(samples, began_times, windows, strict=True):
        seen = (_since(began, series) for series in cut(all_series, *window))
        aligned.append(
            replace(sample, series=(*sample.series, *seen), evidence={**sample.evidence, **_notes(sampled)})
        )
    return tuple(aligned)


def _series(
    result: SampleResult, windows: Sequence[tuple[float, float]], margin: float
) -> tuple[Series, ...]:
    """Return one host's series by the controller's clock, in ``windows`` and ``margin`` seconds around each.

    Each moment is parsed once, even if it is near several windows, because parsing takes the time. A point
    that spans the time between two windows lies in neither.
    """
    if not result.clock:
        return ()
    near = [
        Snapshot(moment.time - result.clock, moment.texts)
        for moment in result.moments
        if any(since - margin <= moment.time - result.clock <= until + margin for since, until in windows)
    ]
    return tuple(series for source in all_sources() for series in to_series(source, result.host, near))


def _since(began: float, series: Series) -> Series:
    """Return ``series`` in seconds since ``began``, rounded to milliseconds and six digits."""
    return replace(
        series,
        times=tuple(round(at - began, 3) for at in series.times),
        values=tuple(float(f"{value:.6g}") for value in series.values),
    )


def _notes(sampled: Sequence[SampleResult]) -> dict[str, str]:
    lines = [
        f"{result.host}: not sampled: {result.note}"
        if result.note
        else f"{result.host}: took {result.cost:.2%} of a core"
        for result in sampled
    ]
    return {"sampling": "\n".join(lines)}


def _read(host: str, result: Mapping[str, Any], middle: float | None) -> SampleResult:
    """Parse a sampler's result; ``middle`` is the controller's time of the signal.

    A damaged result becomes a note.
    """
    try:
        clock = 0.0 if middle is None else float(result["stopped"]) - middle
        lines = zlib.decompress(base64.b64decode(result["data"])).splitlines()
        moments, texts = [], dict[str, str]()
        for line in lines:
            at, changed = json.loads(line)
            texts = {path: text for path, text in {**texts, **changed}.items() if text is not None}
            moments.append(Snapshot(float(at) + float(result["wall"]), texts))
        span = float(result["span"])
        cost = float(result["cost"]) / span if span > 0 else 0.0
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        return SampleResult(host, note=f"the sampler's result cannot be read: {error}")
    return SampleResult(host, tuple(moments), clock, cost)
