"""A custom workload from a fio job file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from storagetest.config.base import WorkloadOptions
from storagetest.config.custom_workloads import CustomWorkloadEntry
from storagetest.errors import ConfigError
from storagetest.measure.histogram import merge
from storagetest.measure.run import METRICS, Sample
from storagetest.protocols.base import Attachment
from storagetest.units import format_size
from storagetest.workloads._custom.base import CustomWorkload, register
from storagetest.workloads._custom.job_file import CustomJob, read_jobs
from storagetest.workloads._fio.base import SLACK, FioOptions, FioWorkload, Pattern, first_ios, utilisation
from storagetest.workloads._fio.job import FioJob, argv_of, barrier_option, first_io_job
from storagetest.workloads._fio.parse import ExpectedReport, FioResult, merge_parts
from storagetest.workloads._fio.run import FIRST_IO_REPORT, run_command
from storagetest.workloads._metrics import (
    bandwidth,
    latencies,
    latency_parts,
    latency_values,
    parts_of_latency,
    percentiles,
    rate,
)
from storagetest.workloads.base import LoadSize

_LARGEST = 1 << 20


class _DataSet(FioWorkload[FioOptions]):
    """The file or device that all workloads by fio share."""

    name = "custom"

    def pattern(self, options: FioOptions) -> Pattern:  # noqa: ARG002
        return Pattern("randread", 4096, 1)


@register
class CustomFioWorkload(CustomWorkload):
    """A workload that a fio job file describes."""

    name = "fio"
    tools = FioWorkload.tools
    jobs: ClassVar[tuple[CustomJob, ...]]
    text: ClassVar[str]
    file: ClassVar[str]

    @classmethod
    def define(cls, name: str, entry: CustomWorkloadEntry, directory: Path, place: str) -> type[Self]:  # noqa: ARG003  # its path is absolute
        """Read the job file; see :class:`CustomWorkload`."""
        path = entry.fio or Path()
        text = _read(path, place)
        jobs = read_jobs(text, str(path))
        metrics = {**METRICS, **parts_of_latency}
        for job in jobs if len(jobs) > 1 else ():
            metrics |= rate(f"{job.name}_iops") | bandwidth(f"{job.name}_bandwidth") | latencies(job.name)
        doc = f"The load of the job file {path.name}."
        members = {"metrics": metrics, "jobs": jobs, "text": text, "file": path.name}
        return cls._subclass(name, doc, source=str(path), **members)

    def parameters(self, options: WorkloadOptions) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the job file's name, and a digest of its text: another text is another load."""
        return {"job_file": self.file, "digest": hashlib.sha256(self.text.encode()).hexdigest()[:12]}

    def dataset(self, options: WorkloadOptions, scale: LoadSize) -> str | None:  # noqa: ARG002
        """Return the key of the data set of all workloads by fio."""
        return _DataSet().dataset(FioOptions(), scale)

    def fill(self, attachment: Attachment, options: WorkloadOptions, scale: LoadSize) -> None:  # noqa: ARG002
        """Write it fully."""
        _DataSet().fill(attachment, FioOptions(), scale)

    def measure(self, attachment: Attachment, options: WorkloadOptions, scale: LoadSize) -> Sample:  # noqa: ARG002
        """Run all jobs of the file at once, on the data set."""
        place = _DataSet().job(attachment, FioOptions(), scale)
        barrier = scale.barrier
        wait = barrier_option(barrier, sum(int(job.options.get("numjobs", "1")) for job in self.jobs) + 1)
        sections = [[*_section(job, place, scale), *wait] for job in self.jobs]
        expected = [ExpectedReport(job.directions, scale.runtime, job.in_flight) for job in self.jobs]
        if barrier:
            sections.append(first_io_job(sections[0]))
            expected.append(FIRST_IO_REPORT)
        command = argv_of(sections)
        deadline = scale.ramp + scale.runtime + scale.start_timeout + SLACK
        wanted = "counters files" if barrier else "counters"
        done = run_command(
            attachment.client, command, expected, deadline=deadline, wanted=wanted, quickly=not barrier
        )
        named = {job.name: result for job, result in zip(self.jobs, done.results, strict=True)}
        values, whole = _values(named), merge(result.latency for result in done.results)
        if done.cpu is not None:
            values["client_cpu"] = done.cpu.share
        return Sample(
            values,
            seconds=max(result.seconds for result in done.results),
            ios=sum(result.ios for result in done.results),
            latency=whole,
            evidence={**done.evidence, "job file": self.text, "size": format_size(place.size)},
            operations={
                **merge_parts(done.results),
                **({name: result.latency for name, result in named.items()} if len(named) > 1 else {}),
            },
            began=done.began,
            utilisation=utilisation(done),
            first_ios=first_ios(done),
        )


def _read(path: Path, place: str) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise ConfigError(f"the job file {path} cannot be read: {error.strerror}", place=place) from None
    except UnicodeDecodeError:
        raise ConfigError(f"the job file {path} is not text in UTF-8", place=place) from None


def _section(job: CustomJob, place: FioJob, scale: LoadSize) -> list[str]:
    """Return a job's options: the user's, then ours, of which fio takes the last."""
    options = [f"--name={job.name}", *(f"--{key}={value}" for key, value in job.options.items())]
    seeded = {"randseed", "randrepeat", "allrandrepeat"} & set(job.options)
    options += [] if seeded else [f"--randseed={scale.repeat + 1}"]
    options += [] if job.makes_its_data else ["--refill_buffers=1"]
    options += [
        f"--filename={place.filename.replace(':', chr(92) + ':')}",
        *([f"--offset={place.offset}"] if place.offset else []),
        f"--size={place.size}",
        "--fallocate=none",
        "--allow_file_create=0",
        "--thread=1",
        "--group_reporting=1",
        "--time_based=1",
        f"--runtime={round(scale.runtime * 1000)}ms",
    ]
    return options + ([f"--ramp_time={round(scale.ramp * 1000)}ms"] if scale.ramp > 0 else [])


def _values(named: Mapping[str, FioResult]) -> dict[str, float]:
    """Return the figures of all jobs together, and where there are several of each."""
    results = list(named.values())
    ios = sum(each.ios for each in results)
    values = {
        "bandwidth": sum(each.bytes / each.seconds for each in results),
        "iops": sum(each.ios / each.seconds for each in results),
        "latency_mean": sum(each.latency_mean * each.ios for each in results) / ios,
        **percentiles(merge(each.latency for each in results)),
        **latency_parts(merge_parts(results)),
    }
    for name, each in named.items() if len(named) > 1 else ():
        values[f"{name}_iops"] = each.ios / each.seconds
        values[f"{name}_bandwidth"] = each.bytes / each.seconds
        values |= latency_values(name, each.latency)
    return values
