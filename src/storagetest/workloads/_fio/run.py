"""Run fio on a client and read the client's counters before and after it, in one remote command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from storagetest.counters import snapshot
from storagetest.counters.cpu import CpuUsage
from storagetest.errors import ClientLacks, DeadlineExceeded, HostError, NotInstalled, WorkloadError
from storagetest.hosts.base import Completed, Host
from storagetest.hosts.fast_exec import Surroundings
from storagetest.measure.series import Series
from storagetest.workloads._agent.run import has_fork_server
from storagetest.workloads._fio import latency_intervals
from storagetest.workloads._fio.job import FIRST, LOG, FioJob, argv
from storagetest.workloads._fio.parse import ExpectedReport, FioResult, parse_all
from storagetest.workloads._fio.timeline import began, first_io, timeline
from storagetest.workloads._metrics import cpu_between

_BEFORE, _FIO, _AFTER = "@@ storagetest: before", "@@ storagetest: fio", "@@ storagetest: after"
_MISSING = "@@ storagetest: fio is missing"
_LOGS = " ".join(
    (*(f"{LOG}_{kind}.log" for kind in ("bw", "iops", "lat")), latency_intervals.FILE, f"{FIRST}_lat.log")
)
_PROBE_TIMEOUT = 30.0
_UPTIME = re.compile(r"^(\d+\.\d\d)$", re.MULTILINE)

# $1: file to preload into the page cache (or empty), $2: how much of it in MiB. It stays open while fio runs:
# a block device's cache is dropped when its last user closes it, and an SMB file's cache with its lease.
# $3: what to read in addition to fio's report: counters, files (logs and files of the start barrier).
# $4: files to drop from the page cache, one a line (or empty). fio would drop them after the barrier, in a
# time that differs between clients.
# "$@" is then fio's command line; this shell does not interpret it. The files are in memory and are removed
# when the script ends. If a signal ends the script, it exits with 143, as fio would. No process is started
# without need: each costs a slow client a tenth of a second.
_SCRIPT = f"""
warm=$1 size=$2 wanted=$3 tidy=$4; shift 4
command -v "$1" > /dev/null || {{ echo '{_MISSING}'; exit 0; }}
case $wanted in *files*)
  dir=$(mktemp -d -p /dev/shm storagetest-XXXXXXXX 2> /dev/null || mktemp -d) || exit 1
  trap 'cd /; rm -rf "$dir"' EXIT
  trap 'exit 143' TERM INT HUP PIPE
  cd "$dir" || exit 1
esac
count() {{ case $wanted in *counters*) {snapshot.command()} {_LOGS}; esac; }}
[ -z "$warm" ] || {{ exec 9< "$warm" && dd of=/dev/null bs=1M count="$size" status=none <&9; }} || exit 1
[ -z "$tidy" ] || printf '%s\n' "$tidy" | while IFS= read -r file; do
  dd of="$file" oflag=nocache conv=notrunc,nocreat,fdatasync count=0 status=none || exit 1
done || exit 1
echo '{_BEFORE}'; count
read up _ < /proc/uptime; echo "$up"
echo '{_FIO}'; "$@"; status=$?
read up _ < /proc/uptime; echo; echo '{_AFTER}'; echo "$up"
count
exit $status
"""


@dataclass(frozen=True, slots=True)
class CounterWindow:
    """The client's counters (path → text) before and after fio, and how long fio took, with ramp."""

    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FioOutcome:
    """fio's results, the client's CPU use meanwhile (set-up and ramp included), and the evidence.

    ``result`` is that of the first job, ``results`` those of all. ``began`` is the start of the measurement
    and ``first_io`` the time of the first I/O after a start barrier, in seconds since the epoch by the
    client's clock. ``series`` is fio's log of all jobs.
    """

    result: FioResult
    cpu: CpuUsage | None
    evidence: Mapping[str, str]
    results: tuple[FioResult, ...] = ()
    counted: CounterWindow = field(default_factory=CounterWindow)
    series: tuple[Series, ...] = ()
    began: float | None = None
    first_io: float | None = None


FIRST_IO_REPORT = ExpectedReport((), None, 1)
"""Expected report of the worker that does the first I/O."""


def run_fio(
    client: Host,
    *jobs: FioJob,
    deadline: float,
    warm: bool = False,
    count: bool = True,
    cooldown: float = 0.0,
    barrier: str = "",
) -> FioOutcome:
    """Run ``jobs`` at once on ``client``; with ``warm``, preload the first job's data into the page cache.

    Without ``count``, no counters are read before and after. Jobs like them continue for ``cooldown`` seconds
    after the runtime; their results are dropped. With ``barrier``, the jobs wait there before they begin.

    Raises :class:`WorkloadError`.
    """
    every = [*jobs, *(_cooling(job, cooldown) for job in jobs if cooldown > 0)]
    expected = [ExpectedReport(job.directions, job.runtime, job.queue_depth * job.jobs) for job in every]
    expected += [FIRST_IO_REPORT] if barrier else []
    interval = max(job.log_interval for job in jobs)
    preload = (jobs[0].filename, str(jobs[0].data_size >> 20)) if warm else ("", "0")
    wanted = " ".join((*(("counters",) if count else ()), *(("files",) if interval > 0 or barrier else ())))
    dirty = barrier and "write" in jobs[0].directions and jobs[0].invalidate and not jobs[0].direct
    done = run_command(
        client,
        argv(*every, barrier=barrier),
        expected,
        deadline=deadline,
        log_interval=interval,
        histogram_interval=max(job.histogram_interval for job in jobs),
        preload=preload,
        wanted=wanted,
        tidy="\n".join(jobs[0].files) if dirty else "",
        cooldown=cooldown,
        quickly=not warm and not barrier,
    )
    return replace(done, results=done.results[: len(jobs)])


def _cooling(job: FioJob, seconds: float) -> FioJob:
    """Return the job that continues after the runtime of ``job``; it writes no logs."""
    return replace(
        job,
        name=f"{job.name}-cooldown",
        ramp=0.0,
        runtime=seconds,
        delay=job.delay + job.ramp + (job.runtime or 0.0),
        seed=None if job.seed is None else job.seed + 1,
        log_interval=0.0,
        invalidate=False,
    )


def run_command(
    client: Host,
    command: tuple[str, ...],
    expected: Sequence[ExpectedReport],
    *,
    deadline: float,
    log_interval: float = 0.0,
    histogram_interval: float = 0.0,
    preload: tuple[str, str] = ("", "0"),
    wanted: str = "counters",
    tidy: str = "",
    cooldown: float = 0.0,
    quickly: bool = False,
) -> FioOutcome:
    """Run a fio command line, as :func:`run_fio` does, and check that it reports what is ``expected``.

    The files ``tidy`` (one a line) are dropped from the page cache first. The last ``cooldown`` seconds are
    not the first job's. With ``quickly``, the client's fork server runs fio if there is one. It does what the
    script does, except for the preload, ``tidy`` and the start barrier.
    """
    try:
        done = (
            _run_measured(client, command, deadline, wanted) if quickly and has_fork_server(client) else None
        )
        if done is None:
            script = ["sh", "-c", _SCRIPT, "storagetest-fio", *preload, wanted, tidy, *command]
            done = client.run(script, deadline=deadline, check=False)
    except DeadlineExceeded as error:
        raise WorkloadError(
            f"{client.name}: fio did not end within {deadline:g} s and was ended. The target may hang: "
            f"check the client's dmesg\n  ran: {shlex.join(command)}"
        ) from error
    return _read(client.name, command, expected, done, (log_interval, histogram_interval), cooldown)


def _run_measured(client: Host, command: tuple[str, ...], deadline: float, wanted: str) -> Completed | None:
    """Run fio by the fork server; return the output that the script would print. None: it has been lost."""
    surroundings = Surroundings(
        counters=snapshot.globs() if "counters" in wanted else (),
        files=tuple(_LOGS.split()) if "files" in wanted else (),
    )
    try:
        measured = client.run_measured(command, deadline=deadline, surroundings=surroundings)
    except NotInstalled:
        return Completed(client.name, command, 0, f"{_MISSING}\n", "", 0.0)
    if measured is None:
        return None
    done, read = measured
    before, after = snapshot.format_output(read.before), snapshot.format_output({**read.after, **read.files})
    output = f"{_BEFORE}\n{before}0.00\n{_FIO}\n{done.stdout}\n{_AFTER}\n{read.seconds:.2f}\n{after}"
    return replace(done, stdout=output)


def check_engine(client: Host, engine: str) -> None:
    """Raise :class:`ClientLacks` if fio works on ``client``, but not with ``engine``.

    The engine is tried on /dev/zero: fio may be built with an engine that the kernel does not support
    (io_uring may be switched off). If fio is missing or fails with its null engine too, that is an error of
    the client, which must not become a skip.
    """
    tried = _probe(client, engine)
    if tried is None or tried.ok:
        return
    healthy = _probe(client, "null")
    if healthy is not None and healthy.ok:
        output = "; ".join((tried.stderr.strip() or tried.stdout.strip()).splitlines()[-2:])
        raise ClientLacks(f"{client.name}: fio cannot use its engine {engine} there: {output}")


def _probe(client: Host, engine: str) -> Completed | None:
    """Read 4 KiB with ``engine`` and return the result; None if fio could not be started."""
    command = ["fio", "--name=probe", f"--ioengine={engine}", "--filename=/dev/zero", "--rw=read"]
    try:
        return client.run([*command, "--bs=4096", "--size=4096"], deadline=_PROBE_TIMEOUT, check=False)
    except HostError:
        return None


def _read(
    name: str,
    command: tuple[str, ...],
    expected: Sequence[ExpectedReport],
    done: Completed,
    intervals: tuple[float, float],
    cooldown: float,
) -> FioOutcome:
    """Return the outcome; ``intervals`` are those of the averaged and of the histogram logs."""
    log_interval, histogram_interval = intervals
    if done.stdout.startswith(_MISSING):
        raise WorkloadError(f"{name}: fio is missing: install the package fio there")
    before, report, after = _sections(done.stdout)
    try:
        results = parse_all(report, done.stderr, expected)
    except WorkloadError as error:
        raise _failed(name, str(error), command, done) from None
    if not done.ok:
        raise _failed(name, f"fio failed\n  {done.stderr.strip()[-1000:]}", command, done)
    evidence = {"argv": shlex.join(command), "fio.json": report.strip()}
    if done.stderr.strip():
        evidence["fio.stderr"] = done.stderr.strip()
    counted = CounterWindow(snapshot.parse(before), snapshot.parse(after), _uptime(after) - _uptime(before))
    first = results[0]
    start = began(after, log_interval) if log_interval > 0 else None
    if start is None and first.ended is not None:
        start = first.ended - cooldown - first.seconds
    series: tuple[Series, ...] = ()
    if start is not None and log_interval > 0:
        series = timeline(after, name, start=start, interval=log_interval)
        if histogram_interval > 0:
            series += latency_intervals.percentiles_over_time(
                after, name, start=start, interval=histogram_interval
            )
    cpu = cpu_between(counted.before.get("/proc/stat", ""), counted.after.get("/proc/stat", ""))
    return FioOutcome(first, cpu, evidence, results, counted, series, start, first_io(after))


def _failed(name: str, reason: str, command: tuple[str, ...], done: Completed) -> WorkloadError:
    return WorkloadError(f"{name}: {reason}\n  ran, with exit status {done.status}: {shlex.join(command)}")


def _sections(stdout: str) -> tuple[str, str, str]:
    """Return the texts between the marks; a section that a killed command did not reach is empty."""
    before, _, rest = stdout.partition(f"{_FIO}\n")
    report, _, after = rest.rpartition(f"{_AFTER}\n") if f"{_AFTER}\n" in rest else (rest, "", "")
    return before, report, after


def _uptime(section: str) -> float:
    """Return the line of a section that is only a number: seconds since boot, to a hundredth (proc(5))."""
    match = _UPTIME.search(section)
    return float(match[1]) if match else 0.0
