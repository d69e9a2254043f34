"""Parse a user's fio job file strictly: no option may affect anything outside the attachment.

Rules:

1. Only known options are accepted; each is either *kept* or *replaced*. Any other is refused with its
   location. Why: fio has options that run programs, open other files and devices, and write logs to any
   path. A list of forbidden options would be out of date with the next fio.
2. File, size, ramp and runtime come from the attachment and the profile, as for every workload. Options of
   size and time are replaced; options that name a file or a directory are refused.
3. Values are literal: no variables, no expressions, no shell.
4. All jobs of a file run at the same time.

The format: fio(1), "Job File Format". Lines are ``[job]``, ``option=value`` or ``option``; ``;`` and ``#``
begin comments; options under ``[global]`` apply to the jobs below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from storagetest.errors import ConfigError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SECTION = re.compile(r"[A-Za-z][\w.-]*")
_VALUE = re.compile(r"[\w.,:/%+-]*")
_ALIASES = {
    "readwrite": "rw",
    "blocksize": "bs",
    "blocksize_range": "bsrange",
    "blocksize_unaligned": "bs_unaligned",
    "ba": "blockalign",
    "ratemin": "rate_min",
}
_KEPT = _words("""
    description rw bs bsrange bssplit bs_unaligned bs_is_seq_rand blockalign
    ioengine direct buffered sync fsync fdatasync iodepth iodepth_batch iodepth_batch_submit
    iodepth_batch_complete_min iodepth_batch_complete_max iodepth_low serialize_overlap hipri
    registerfiles fixedbufs
    numjobs thread nice prio prioclass cpus_allowed cpus_allowed_policy
    rwmixread rwmixwrite percentage_random random_distribution random_generator norandommap softrandommap
    randrepeat allrandrepeat randseed invalidate
    rate rate_min rate_iops rate_iops_min rate_process rate_cycle
    thinktime thinktime_spin thinktime_blocks thinktime_blocks_type thinktime_iotime
    refill_buffers scramble_buffers zero_buffers buffer_compress_percentage buffer_compress_chunk
    dedupe_percentage
    """)
_REPLACED = _words("""
    size io_size io_limit filesize runtime timeout time_based ramp_time loops group_reporting new_group
    percentile_list lat_percentiles clat_percentiles slat_percentiles stats
    """)
_REFUSED = {
    **dict.fromkeys(
        _words("filename directory filename_format opendir nrfiles openfiles offset offset_increment"),
        "a job file must not name files or directories: the target provides the file",
    ),
    **dict.fromkeys(
        _words("exec_prerun exec_postrun exec program ioscheduler cgroup include"),
        "a job file must only define I/O",
    ),
    **dict.fromkeys(
        _words("stonewall wait_for wait_for_previous startdelay start_delay"),
        "all jobs of a file run at the same time",
    ),
}
"""Why an option is refused."""
_ENGINES = _words("libaio io_uring psync sync pvsync pvsync2 posixaio mmap vsync")
_DIRECTIONS = {
    **dict.fromkeys(("read", "randread"), ("read",)),
    **dict.fromkeys(("write", "randwrite"), ("write",)),
    **dict.fromkeys(("rw", "readwrite", "randrw"), ("read", "write")),
}
_DATA = _words("refill_buffers scramble_buffers zero_buffers buffer_compress_percentage dedupe_percentage")


@dataclass(frozen=True, slots=True)
class CustomJob:
    """One job: its name, the kept options, and the directions (``read``, ``write``) of its I/O."""

    name: str
    options: Mapping[str, str]
    directions: tuple[str, ...]

    @property
    def in_flight(self) -> int:
        """I/Os in flight, of all its workers."""
        return int(self.options.get("iodepth", "1")) * int(self.options.get("numjobs", "1"))

    @property
    def makes_its_data(self) -> bool:
        """Whether an option sets the data written; if not, incompressible data is written."""
        return bool(_DATA & set(self.options))


def read_jobs(text: str, file: str) -> tuple[CustomJob, ...]:
    """Return the jobs of a file. Raises :class:`ConfigError`, led by ``file:line:col``."""
    common: dict[str, str] = {}
    jobs: list[tuple[str, str, dict[str, str]]] = []
    current: dict[str, str] | None = None
    for place, line in _lines(text, file):
        section = re.fullmatch(r"\[(.*)\]", line)
        if section is not None:
            current = common if section[1] == "global" else dict(common)
            if section[1] != "global":
                jobs.append((_section(section[1], jobs, place), place, current))
            continue
        if current is None:
            # The line is not printed: a file that is none of fio's may contain secrets.
            raise ConfigError("expected [job] or [global]; is this a job file of fio?", place=place)
        name, value = _option(line, place)
        if name is not None:
            current[name] = value
    if not jobs:
        raise ConfigError("no [job] section, only [global]", place=f"{file}:1:1")
    return tuple(_job(name, options, place) for name, place, options in jobs)


def _lines(text: str, file: str) -> Iterator[tuple[str, str]]:
    """Yield location and text of each line that is not empty or a comment."""
    for number, raw in enumerate(text.splitlines(), start=1):
        option = re.split(r"[;#]", raw, maxsplit=1)[0]
        if option.strip():
            yield f"{file}:{number}:{len(option) - len(option.lstrip()) + 1}", option.strip()


def _section(name: str, known: list[tuple[str, str, dict[str, str]]], place: str) -> str:
    if not _SECTION.fullmatch(name):
        raise ConfigError(
            f"[{name}]: a job's name leads its metrics' names: a letter, then letters, digits, _ . and -",
            place=place,
        )
    if any(name == other for other, _, _ in known):
        raise ConfigError(f"[{name}] is defined twice: give each job its own name", place=place)
    return name


def _option(line: str, place: str) -> tuple[str | None, str]:
    """Return a kept option by its canonical name, and its value; None for a replaced option."""
    option, equals, value = (part.strip() for part in line.partition("="))
    name = _ALIASES.get(option, option)
    first = name.split()[0] if name else ""
    if name in _REPLACED:
        return None, ""
    if first in _REFUSED:
        raise ConfigError(f"{first}: {_REFUSED[first]}. Remove the option", place=place)
    if name not in _KEPT:
        raise ConfigError(
            f"{option}: this option is not supported in job files; supported are: {', '.join(sorted(_KEPT))}",
            place=place,
        )
    if equals and not value:
        raise ConfigError(f"{option}: the value after the = is missing", place=place)
    if name != "description" and not _VALUE.fullmatch(value):
        raise ConfigError(
            f"{option}: {value!r} is not accepted: no variables, expressions, quotes or spaces", place=place
        )
    return name, value if equals else "1"


def _job(name: str, options: Mapping[str, str], place: str) -> CustomJob:
    options = {key: value for key, value in options.items() if key != "description"}
    rw = options.get("rw", "read").partition(":")[0]
    engine = options.get("ioengine", "psync")
    problem = next(_problems(rw, engine, options), None)
    if problem is not None:
        raise ConfigError(f"[{name}]: {problem}", place=place)
    return CustomJob(name, {"ioengine": engine, **options}, _DIRECTIONS[rw])


def _problems(rw: str, engine: str, options: Mapping[str, str]) -> Iterator[str]:
    """Yield the reasons why a job with these options is refused."""
    if rw not in _DIRECTIONS:
        yield f"rw={rw}: expected one of {', '.join(_DIRECTIONS)}"
    if engine not in _ENGINES:
        yield f"ioengine={engine}: expected one of {', '.join(sorted(_ENGINES))}"
    for key in ("iodepth", "numjobs"):
        if not re.fullmatch(r"[1-9][0-9]{0,3}", options.get(key, "1")):
            yield f"{key}={options[key]}: expected a number from 1 to 9999"
    if engine == "libaio" and options.get("direct", "0") == "0":
        yield (
            "libaio without direct=1 waits in the submission and has one I/O in flight: use "
            "ioengine=psync or io_uring"
        )
    if len(_DIRECTIONS[rw]) > 1 and options.get("rwmixread", "50") in {"0", "100"}:
        yield f"rwmixread={options['rwmixread']} is not a mix: use rw=read or rw=write"
