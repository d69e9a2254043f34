"""What fio is asked to do, and the command line that asks it. Nothing is run here.

Every option's meaning: fio(1). Times are given in milliseconds, because fio takes no fractions of a second.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from storagetest.agent.barrier import LEAD

LOG = "load"
"""How the names of the files of fio's logs begin."""

FIRST = "first"
"""How those of the scout's do."""


_COARSENESS = 2
"""Four of fio's buckets are one count of its histogram log: at most 6.25 % wide, the middle within 3.2 %."""

_MOST_LINES = 1000
"""Lines of a histogram log, of 1.4 KB each, most of it zeros (chosen)."""


class Division(StrEnum):
    """What each of a job's workers works on: the whole data set, its part of it, or a file of its own."""

    WHOLE = "whole"
    PART = "part"
    FILE = "file"


JOB_NUMBER = "$jobnum"
"""Stands for the number of the worker, from 0, in the name of a file (``filename_format`` of fio(1))."""


@dataclass(frozen=True, slots=True)
class FioJob:
    """One fio job on one file or device, or on a file for each worker.

    Each worker uses ``size`` bytes, in blocks of ``block_size``: from ``offset`` on, with ``Division.PART``
    the first from there, the next behind it and so on; with ``Division.FILE`` ``filename`` has
    :data:`JOB_NUMBER` in it. ``jobs`` workers keep ``queue_depth`` I/Os each in flight.

    ``sync`` opens with O_SYNC (``sync``) or O_DSYNC (``dsync``). With ``runtime`` (seconds) it runs that long
    after ``ramp``; without, it passes over ``size`` once. ``seed`` makes the order of random I/O and the data
    repeatable; without, both differ each time. Of a mix (``randrw``, ``rw``) ``read_percent`` of the I/Os are
    reads; of one that is partly sequential ``random_percent`` go to random offsets. With ``create`` fio
    creates the file; else a missing file is an error, never a file full of holes. With ``log_interval``
    (seconds) fio leaves files named after :data:`LOG` in its working directory: bandwidth, IOPS, latency and
    its histogram over time. Without ``invalidate`` the page cache keeps the file's pages when fio begins. It
    begins ``delay`` seconds after fio does.
    """

    name: str
    filename: str
    rw: str
    block_size: int
    size: int
    queue_depth: int = 1
    jobs: int = 1
    direct: bool = True
    engine: str = "libaio"
    sync: str = "none"
    ramp: float = 0.0
    runtime: float | None = None
    seed: int | None = None
    read_percent: int | None = None
    random_percent: int | None = None
    create: bool = False
    log_interval: float = 0.0
    invalidate: bool = True
    delay: float = 0.0
    offset: int = 0
    division: Division = Division.WHOLE

    @property
    def data_size(self) -> int:
        """Bytes that all workers together use."""
        return self.size if self.division is Division.WHOLE else self.size * self.jobs

    @property
    def files(self) -> tuple[str, ...]:
        """The files of all workers, or the device."""
        if self.division is not Division.FILE:
            return (self.filename,)
        return tuple(self.filename.replace(JOB_NUMBER, str(number)) for number in range(self.jobs))

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions of its I/O: ``read``, ``write`` or both."""
        if self.rw.endswith("rw"):
            return "read", "write"
        return ("read",) if self.rw.endswith("read") else ("write",)

    @property
    def histogram_interval(self) -> float:
        """Seconds between the lines of a worker's histogram log, so that all have 1000 at most; 0: no log."""
        if self.log_interval <= 0:
            return 0.0
        lines = self.jobs * len(self.directions)
        return max(self.log_interval, (self.runtime or 0.0) * lines / _MOST_LINES)


_REPORT = (
    *(f"--{kind}_percentiles=1" for kind in ("lat", "clat", "slat")),
    "--percentile_list=50:95:99:99.9",
)


def argv(*jobs: FioJob, barrier: str = "") -> tuple[str, ...]:
    """Return the command line that runs ``jobs`` at once, ``fio`` first; each job has its own report.

    With ``barrier`` (a directory), all workers wait at that start barrier when they are set up. The worker of
    :func:`first_io_job` waits with them; its report is the last.
    """
    workers = sum(job.jobs for job in jobs) + 1
    every = [
        [*_options(job, at_once=bool(barrier)), *barrier_option(barrier, workers, job.delay)] for job in jobs
    ]
    return argv_of([*every, first_io_job(every[0])] if barrier else every)


def first_io_job(section: Sequence[str]) -> list[str]:
    """Return the options of a worker that does the first I/O of the job in ``section``, and no other one.

    fio reports an I/O's time only in a log of every I/O, which is too large for a whole load. This worker
    waits at the same barrier, opens the same file and writes a log of one line.
    """
    like = [option for option in section[1:] if not option.startswith(("--write_", "--log_"))]
    once = (
        "--numjobs=1",
        "--iodepth=1",
        "--number_ios=1",
        "--time_based=0",
        "--ramp_time=0",
        "--end_fsync=0",
    )
    log = (f"--write_lat_log={FIRST}", "--log_unix_epoch=1", "--per_job_logs=0")
    return [f"--name={FIRST}", *like, *once, *log]


def barrier_option(barrier: str, workers: int, delay: float = 0.0) -> tuple[str, ...]:
    """Return the option that makes each of ``workers`` wait at ``barrier``; none if it is empty.

    fio runs it when a worker is set up, right before it reads the clock for its first I/O. A worker that
    begins ``delay`` seconds after the others waits with them: fio's own delay counts from fio's start.
    """
    later = f"; exec 3>&- 4<&-; sleep {delay + LEAD * 1e-9:.3f}" if delay > 0 else ""
    return (f"--exec_prerun=workers={workers}; . {shlex.quote(f'{barrier}/wait')}{later}",) if barrier else ()


def argv_of(sections: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the fio command line of jobs; each section is a job's options, ``--name=`` first."""
    apart = ["--new_group=1"] if len(sections) > 1 else []
    options = [option for section in sections for option in (*section, *apart, *_REPORT)]
    return ("fio", *options, "--eta=never", "--output-format=json+")


def _options(job: FioJob, *, at_once: bool = False) -> list[str]:
    """Return one job's options.

    Buffers are refilled with random (incompressible) data before every write. Workers are summed up by fio
    (``group_reporting``); json+ has the bins of total, completion and submission latency.
    """
    options = [
        f"--name={job.name}",
        *_place(job),
        f"--rw={job.rw}",
        f"--bs={job.block_size}",
        f"--size={job.size}",
        f"--ioengine={job.engine}",
        f"--iodepth={job.queue_depth}",
        f"--numjobs={job.jobs}",
        f"--direct={int(job.direct)}",
        *([] if job.sync == "none" else [f"--sync={job.sync}"]),
        "--thread=1",
        "--group_reporting=1",
        "--refill_buffers=1",
        "--fallocate=none",  # fallocated blocks are unwritten extents: the first write to each costs more
        f"--allow_file_create={int(job.create)}",
        "--randrepeat=0" if job.seed is None else f"--randseed={job.seed}",
    ]
    timed = job.runtime is not None
    optional = {
        "--norandommap=1": job.rw.startswith("rand"),
        f"--rwmixread={job.read_percent}": job.read_percent is not None,
        f"--percentage_random={job.random_percent}": job.random_percent is not None,
        "--end_fsync=1": not timed,
        "--time_based=1": timed,
        f"--runtime={_milliseconds(job.runtime or 0.0)}": timed,
        f"--ramp_time={_milliseconds(job.ramp)}": timed and job.ramp > 0,
        f"--startdelay={_milliseconds(job.delay)}": job.delay > 0 and not at_once,
        "--invalidate=0": not job.invalidate,
    }
    options += [option for option, wanted in optional.items() if wanted]
    if job.log_interval > 0:
        options += [f"--write_{kind}_log={LOG}" for kind in ("bw", "iops", "lat")]
        options.append(f"--log_avg_msec={max(1, round(job.log_interval * 1000))}")
        options.append(f"--write_hist_log={LOG}")
        options.append(f"--log_hist_msec={max(1, round(job.histogram_interval * 1000))}")
        options.append(f"--log_hist_coarseness={_COARSENESS}")
        options += ["--per_job_logs=0", "--log_unix_epoch=1"]
    return options


def _place(job: FioJob) -> list[str]:
    """Return the options of the file or device, and of the place in it. fio splits names at ':'."""
    path = job.filename.replace(":", r"\:")
    if job.division is Division.FILE:
        path_of = PurePosixPath(path)
        return [f"--directory={path_of.parent}", f"--filename_format={path_of.name}"]
    parts = job.division is Division.PART
    return [
        f"--filename={path}",
        *([f"--offset={job.offset}"] if job.offset else []),
        *([f"--offset_increment={job.size}"] if parts else []),
    ]


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
