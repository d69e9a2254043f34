"""Base class of fio workloads: options, data set, prefill, and conversion of fio's result to a sample.

A subclass defines its options and its :class:`Pattern`; see ``small_random_write.py``.

The data set is one file, or the start of a device, fully written with random data before anything is
measured. All workloads of one size share it. It is ``scale.size`` bytes; every sample's evidence has its
size. With ``files: per-job`` it is that many bytes in as many files as there are workers.
"""

from __future__ import annotations

import random
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, model_validator

from storagetest.config.base import WorkloadOptions
from storagetest.counters._transferred_bytes import transferred_between
from storagetest.counters.base import rate_between
from storagetest.counters.nic import Nic, traffic
from storagetest.errors import WorkloadError
from storagetest.hosts.base import Host
from storagetest.measure.bottleneck import Utilisation
from storagetest.measure.cache import Cache, why_cache_state_unproven
from storagetest.measure.run import METRICS, Metric, Sample
from storagetest.protocols.base import Attachment, AttachmentKind, Capability
from storagetest.units import format_size
from storagetest.workloads._fio.job import JOB_NUMBER, Division, FioJob
from storagetest.workloads._fio.run import FioOutcome, check_engine, run_fio
from storagetest.workloads._metrics import describe_cpu, latency_parts, parts_of_latency, percentiles
from storagetest.workloads.base import LoadSize, Workload

_MIB = 1 << 20
SLACK = 60.0
"""Seconds that a load may take beyond ramp and runtime: to start and prepare, and for its last operations."""

_CEILING_SECONDS = 0.3
"""Short, because an estimate suffices: a target is far slower, or the client is the limit."""

SLOWEST_FILL = 2 * _MIB
"""Bytes per second. A target that is filled more slowly is treated as hung."""

SHARE_OF_FREE = 0.9
"""Share of a file system's free space that is used: metadata and some file systems need the rest."""

_SAMPLES, _SAMPLE = 64, 4096
"""Places of a file that are read, and the bytes of each."""

# $1: the file, $2: a flag for dd (or empty), then numbers of blocks. A block without data, or one that cannot
# be read, is printed.
_HOLES = f"""
file=$1 flag=$2; shift 2
for at do
  bytes=$(dd if="$file" bs={_SAMPLE} count=1 skip="$at" ${{flag:+iflag=$flag}} status=none |
    tr -d '\\000' | wc -c)
  [ "$bytes" -gt 0 ] || echo "$at"
done
"""


class FioOptions(WorkloadOptions):
    """Options of every fio workload."""

    direct: bool = True
    """Bypass the client's page cache (O_DIRECT)."""

    cache: Literal["cold", "warm"] | None = None
    """The client's page cache when reading begins: `cold` (none of the data) or `warm` (all of it). It
    needs direct: false. Counters prove whether the reads crossed the wire."""

    engine: Literal["libaio", "io_uring", "psync", "mmap"] = "libaio"
    """How fio submits I/O. If the client does not support an engine that is set, the case is skipped."""

    sync: Literal["none", "sync", "dsync"] = "none"
    """Whether every write is on stable storage before it counts as done (O_SYNC, O_DSYNC)."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Seed of the order of random I/O and of the data written."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.engine == "libaio" and not self.direct:
            raise ValueError(
                "libaio with direct: false waits in the submission and has one I/O in flight: "
                "use engine: psync or io_uring"
            )
        if self.engine == "mmap" and (self.direct or self.sync != "none"):
            raise ValueError("mmap uses the page cache and takes no sync: use direct: false, sync: none")
        if self.cache is not None and self.direct:
            raise ValueError(f"cache: {self.cache} is about the page cache, which direct: true bypasses")
        depth = getattr(self, "queue_depth", 1)
        if self.engine in {"psync", "mmap"} and depth > 1:
            raise ValueError(
                f"{self.engine} has one I/O in flight a job, not {depth}: use queue_depth: 1 and more jobs"
            )
        block_size = getattr(self, "block_size", 512)
        if block_size < 512 or (self.direct and block_size % 512):
            raise ValueError(f"block_size: {block_size} bytes is not a multiple of 512")
        return self


class JobsOptions(FioOptions):
    """Options of a load of several workers."""

    jobs: Annotated[int, Field(ge=1, le=256)] = 1
    """Workers at the same time."""

    files: Literal["shared", "per-job"] = "shared"
    """`shared`: all workers use one file or device. `per-job`: each has a file of its own, and all files
    together have the size of the data set; a case without a file system is skipped."""

    @model_validator(mode="after")
    def _warm_is_one_file(self) -> Self:
        if self.files == "per-job" and self.cache == "warm":
            raise ValueError("cache: warm is about one file: use files: shared")
        return self


@dataclass(frozen=True, slots=True)
class Pattern:
    """The I/O itself: ``rw`` is fio's (``randwrite``, ``read`` …).

    ``division`` is what each of ``jobs`` workers works on, unless each has a file of its own by the options.
    """

    rw: str
    block_size: int
    queue_depth: int
    jobs: int = 1
    read_percent: int | None = None
    random_percent: int | None = None
    division: Division = Division.WHOLE


O = TypeVar("O", bound=FioOptions)  # noqa: E741  # options


class FioWorkload(Workload[O]):
    """A load that fio runs on a file or a device. Subclasses define :meth:`pattern`."""

    tools: ClassVar[Mapping[str, tuple[str, ...]]] = {"fio": ("fio", "--version")}
    metrics: ClassVar[Mapping[str, Metric]] = {**METRICS, **parts_of_latency}
    added_options: ClassVar[frozenset[str]] = frozenset({"cache", "files"})
    """Options that older results do not have. They are parameters of a result only where they are set to
    another value than the default, so that a case keeps its baseline."""

    @abstractmethod
    def pattern(self, options: O) -> Pattern:
        """Return the I/O pattern of ``options``."""

    def parameters(self, options: O) -> Mapping[str, Any]:
        """Return the options, sizes as ``4KiB``; the workload's own come first."""
        dumped = options.model_dump()
        fields = type(options).model_fields
        for name in self.added_options & dumped.keys():
            if dumped[name] == fields[name].default:
                del dumped[name]
        last = [name for kind in (JobsOptions, FioOptions) for name in kind.__annotations__ if name in dumped]
        shared = {name: dumped.pop(name) for name in last}
        parameters = {**dumped, **shared}
        if "block_size" in parameters:
            parameters["block_size"] = format_size(parameters["block_size"])
        return parameters

    def capabilities(self, options: O) -> frozenset[Capability]:
        """Return ``filesystem`` too, if each worker has a file of its own."""
        files = {AttachmentKind.FILESYSTEM.value} if _file_per_job(options) else set()
        return super().capabilities(options) | files

    def dataset(self, options: O, scale: LoadSize) -> str | None:
        """Return a key of the size alone: every pattern runs on the same file, or on as many files."""
        files = f" in {self.pattern(options).jobs} files" if _file_per_job(options) else ""
        return f"{data_key(scale)}{files}"

    def fill(self, attachment: Attachment, options: O, scale: LoadSize) -> None:
        """Write the whole size once, in sequence, with incompressible data; at the end it is synchronised.

        It bypasses the page cache if the load does: a target may refuse O_DIRECT (open(2)).
        """
        fs = attachment.kind is AttachmentKind.FILESYSTEM
        jobs = self.pattern(options).jobs if _file_per_job(options) else 1
        filename, size = _place(attachment, scale, jobs if _file_per_job(options) else None)
        job = FioJob(
            "fill",
            filename,
            "write",
            _MIB,
            size,
            queue_depth=4,
            jobs=jobs,
            direct=options.direct,
            create=fs,
            offset=attachment.offset,
            division=Division.FILE if _file_per_job(options) else Division.WHOLE,
        )
        done = run_fio(attachment.client, job, deadline=SLACK + job.data_size / SLOWEST_FILL, count=False)
        if done.result.bytes != job.data_size:
            written = f"{done.result.bytes} of {job.data_size} bytes"
            raise WorkloadError(f"{attachment.client.name}: filling {filename} wrote {written}")
        for file in job.files if fs else ():
            _check_filled(attachment, file, size, direct=options.direct)

    def measure(self, attachment: Attachment, options: O, scale: LoadSize) -> Sample:
        """Run ramp and runtime once on the filled data set."""
        job = self.job(attachment, options, scale)
        if options.cache is not None and job.directions != ("read",):
            raise WorkloadError(f"{self.name}: cache: {options.cache} is about loads that only read")
        done = self.run(attachment, options, scale, job)
        sample = _sample(done, {"size": format_size(job.data_size)})
        return with_cache_proof(sample, done, self.cache(options), job.filename)

    def cache(self, options: O) -> Cache | None:
        """Return the state of the caches; None (unknown) for a buffered load without the option."""
        return Cache.DIRECT if options.direct else Cache(options.cache) if options.cache else None

    def run(self, attachment: Attachment, options: O, scale: LoadSize, *jobs: FioJob) -> FioOutcome:
        """Run ``jobs`` at once. Raises :class:`ClientLacks` if the client lacks an engine that is set.

        One worker alone needs no cool-down: no other one is measured after its end.
        """
        warm = options.cache == "warm"
        alone = sum(job.jobs for job in jobs) == 1 and not scale.barrier
        cooldown = 0.0 if alone else scale.cooldown
        deadline = scale.ramp + scale.runtime + cooldown + scale.start_timeout + SLACK
        if warm:
            deadline += jobs[0].data_size / SLOWEST_FILL
        try:
            return run_fio(
                attachment.client,
                *jobs,
                deadline=deadline,
                warm=warm,
                cooldown=cooldown,
                barrier=scale.barrier,
            )
        except WorkloadError:
            if "engine" in options.model_fields_set:
                check_engine(attachment.client, options.engine)
            raise

    def ceiling(self, attachment: Attachment, options: O, scale: LoadSize) -> float | None:
        """Measure the client's limit with fio's null engine, which completes every I/O at once."""
        job = replace(
            self.job(attachment, options, scale),
            engine="null",
            direct=False,
            sync="none",
            ramp=0.0,
            runtime=_CEILING_SECONDS,
            log_interval=0.0,
        )
        result = run_fio(attachment.client, job, deadline=SLACK, count=False).result
        return result.ios / result.seconds

    def job(self, attachment: Attachment, options: O, scale: LoadSize) -> FioJob:
        """Return fio's job. Raises :class:`WorkloadError` if its blocks do not fit into the data set."""
        pattern = self.pattern(options)
        if _file_per_job(options):
            pattern = replace(pattern, division=Division.FILE)
        per_job = pattern.division is Division.FILE
        filename, size = _place(attachment, scale, pattern.jobs if per_job else None)
        total = size * pattern.jobs if per_job else size
        if total < pattern.block_size * pattern.queue_depth * pattern.jobs:
            raise WorkloadError(
                f"{attachment.client.name}: {self.name}: {pattern.queue_depth * pattern.jobs} blocks of "
                f"{format_size(pattern.block_size)} do not fit into {format_size(total)}: use a larger size"
            )
        if pattern.division is Division.PART:
            size = size // pattern.jobs // pattern.block_size * pattern.block_size
        return FioJob(
            name=self.name,
            filename=filename,
            size=size,
            **asdict(pattern),
            **options.model_dump(include={"direct", "engine", "sync"}),
            ramp=scale.ramp,
            runtime=scale.runtime,
            seed=zlib.crc32(f"{self.title(options)} {options.seed} {scale.repeat}".encode()),
            log_interval=scale.interval,
            invalidate=options.cache != "warm",
            offset=attachment.offset,
        )


def _sample(done: FioOutcome, evidence: Mapping[str, str]) -> Sample:
    result = done.result
    values = {
        "bandwidth": result.bytes / result.seconds,
        "iops": result.ios / result.seconds,
        "latency_mean": result.latency_mean,
        **percentiles(result.latency),
        **latency_parts(result.parts),
    }
    notes = dict(evidence)
    if done.cpu is not None:
        values["client_cpu"] = done.cpu.share
        notes["cpu"] = describe_cpu(done.cpu)
    return Sample(
        values,
        result.seconds,
        result.ios,
        result.latency,
        {**done.evidence, **notes},
        operations=result.parts,
        series=done.series,
        began=done.began,
        utilisation=utilisation(done),
        first_ios=first_ios(done),
    )


def first_ios(*runs: FioOutcome) -> tuple[float, ...]:
    """Return the times of the first I/Os of ``runs``; empty if one of them is unknown."""
    known = tuple(done.first_io for done in runs if done.first_io is not None)
    return known if len(known) == len(runs) else ()


def with_cache_proof(sample: Sample, done: FioOutcome, state: Cache | None, path: str) -> Sample:
    """Return ``sample`` with the bytes that crossed the wire, invalid if they do not prove ``state``."""
    crossed = transferred_between(done.counted.before, done.counted.after, path)
    if crossed is None or state is None:
        reason = why_cache_state_unproven(state, moved=0, crossed=None) if state else ""
    else:
        bytes_crossed = f"{crossed.read} bytes read and {crossed.written} written"
        note = f"{bytes_crossed}, by {crossed.counter} counters, with ramp"
        sample = replace(sample, evidence={**sample.evidence, "crossed the wire": note})
        moved, counted = sum(one.read for one in done.results), crossed.read
        if state is Cache.DIRECT:
            moved, counted = sum(each.bytes for each in done.results), crossed.read + crossed.written
        reason = why_cache_state_unproven(state, moved=moved, crossed=counted, counter=crossed.counter)
    return replace(sample, invalid=(*sample.invalid, reason)) if reason else sample


def utilisation(done: FioOutcome) -> Utilisation:
    """Return the use of the client's CPU and network while fio ran; the runner adds the ceiling."""
    before, after = done.counted.before, done.counted.after
    seconds = done.counted.seconds
    cards = traffic(before)
    shares = [
        max(now.received - cards[name].received, now.sent - cards[name].sent) / seconds / now.speed
        for name, now in traffic(after).items()
        if name in cards and now.speed and seconds > 0
    ]
    readings = [Nic().parse(Nic().select(texts)).get("TCP retransmitted share") for texts in (before, after)]
    resent = rate_between(readings[0], readings[1], seconds) if readings[0] and readings[1] else None
    measured = max(one.seconds for one in done.results)
    return Utilisation(
        rate=sum(one.ios for one in done.results) / measured,
        busiest_core=done.cpu.busiest_core if done.cpu else None,
        network=max(shares, default=None),
        resent=resent,
        busy_cores=done.cpu.share * done.cpu.cores * seconds / measured if done.cpu else None,
    )


def _file_per_job(options: FioOptions) -> bool:
    return isinstance(options, JobsOptions) and options.files == "per-job"


def _place(attachment: Attachment, scale: LoadSize, files: int | None) -> tuple[str, int]:
    """Return the data set's file or device and its bytes; with ``files``, the files' name and those of each.

    Raises :class:`WorkloadError` if a file would have less than 1 MiB.
    """
    size = data_size(attachment, scale)
    if files is None:
        return data_file(attachment, scale), size
    each = size // files // _MIB * _MIB
    if each == 0:
        raise WorkloadError(
            f"{attachment.client.name}: {files} files of at least 1MiB do not fit into {format_size(size)}: "
            "use a larger size or fewer jobs"
        )
    return f"{attachment.path}/storagetest-{scale.size}-{files}.{JOB_NUMBER}.dat", each


def data_key(scale: LoadSize) -> str:
    """Return the key of the data set that all loads of a size share."""
    return f"fio:{scale.size}"


def data_size(attachment: Attachment, scale: LoadSize) -> int:
    """Return the bytes of the data set: the profile's size, in whole MiB.

    Raises :class:`WorkloadError` if they do not fit: the caches of a target serve a smaller data set faster.
    """
    of_free, usable = "", attachment.size
    if attachment.kind is AttachmentKind.FILESYSTEM:
        of_free, usable = f" free, of which {SHARE_OF_FREE:.0%} are used at most", int(usable * SHARE_OF_FREE)
    size = scale.size // _MIB * _MIB
    if not 0 < size <= usable:
        raise WorkloadError(
            f"{attachment.client.name}: the data set has {format_size(scale.size)}; {attachment.path} has "
            f"{format_size(attachment.size)}{of_free}, and at least 1MiB is required. Free space, or set "
            "another `size` in the profile"
        )
    return size


def data_file(attachment: Attachment, scale: LoadSize) -> str:
    """Return the path of the data set's file, or of the device."""
    if attachment.kind is AttachmentKind.BLOCK:
        return attachment.path
    return f"{attachment.path}/storagetest-{scale.size}.dat"


def _check_filled(attachment: Attachment, filename: str, size: int, *, direct: bool) -> None:
    """Raise :class:`WorkloadError` unless the file has its size, and data in all of it.

    Blocks behind the file prove that. Some servers count none (an OSD of Lustre may not), or count them late
    (ZFS: when the transaction group is written): there, places all over the file are read. The fill is
    random, so a place that reads as zeros is a hole.
    """
    client = attachment.client
    length, blocks, unit = _ask_server(client, filename)
    if length == size and blocks * unit >= size * SHARE_OF_FREE:
        return
    places = random.Random(size)  # noqa: S311  # a sample
    part = size // _SAMPLES // _SAMPLE
    sampled = [str(number * part + places.randrange(part)) for number in range(_SAMPLES)]
    script = [*("sh", "-c", _HOLES, "storagetest-holes", filename, "direct" if direct else ""), *sampled]
    holes = client.run(script, deadline=SLACK + SLACK).stdout.split()
    if length != size or holes:
        raise WorkloadError(
            f"{client.name}: {filename} was filled with {size} bytes, and the target reports that it is "
            f"{length} bytes long with {blocks * unit} allocated; {len(holes)} of {_SAMPLES} places in it "
            "read as zeros: holes would be measured, not data"
        )


def _ask_server(client: Host, filename: str) -> tuple[int, int, int]:
    """Return size, number of blocks and bytes of a block, as the server knows them.

    SMB's client answers with those at the file's creation for a second. coreutils before 8.31 cannot ask.
    """
    wanted = ["--format=%s %b %B", filename]
    done = client.run(["stat", "--cached=never", *wanted], deadline=SLACK, check=False)
    if not done.ok:
        done = client.run(["stat", *wanted], deadline=SLACK)
    length, blocks, unit = (int(word) for word in done.stdout.split())
    return length, blocks, unit
