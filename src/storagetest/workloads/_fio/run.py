"""Running fio on a client, with the client's processor time read around it in the same remote command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from storagetest.counters.cpu import Busy, busy, parse_stat
from storagetest.errors import DeadlineExceeded, WorkloadError
from storagetest.hosts.base import Completed, Host
from storagetest.workloads._fio.job import FioJob, argv
from storagetest.workloads._fio.parse import FioResult, parse

__all__ = ["Done", "run_fio"]

_BEFORE, _FIO, _AFTER = "@@ storagetest: cpu before", "@@ storagetest: fio", "@@ storagetest: cpu after"
_MISSING = "@@ storagetest: fio is missing"

# $@ is fio's command line: nothing in it is read by this shell.
_SCRIPT = f"""
command -v "$1" > /dev/null || {{ echo '{_MISSING}'; exit 0; }}
echo '{_BEFORE}'; grep '^cpu' /proc/stat
echo '{_FIO}'; "$@"; status=$?
echo; echo '{_AFTER}'; grep '^cpu' /proc/stat
exit $status
"""


@dataclass(frozen=True, slots=True)
class Done:
    """What fio measured, how busy the client was meanwhile (set-up and ramp included), and the evidence."""

    result: FioResult
    cpu: Busy | None
    evidence: Mapping[str, str]


def run_fio(client: Host, job: FioJob, *, deadline: float) -> Done:
    """Run ``job`` on ``client``. Raises :class:`WorkloadError`, whose message says what to do next."""
    command = argv(job)
    try:
        done = client.run(["sh", "-c", _SCRIPT, "storagetest-fio", *command], deadline=deadline, check=False)
    except DeadlineExceeded as error:
        msg = (
            f"{client.name}: fio did not end within {deadline:g} s and was ended. The target may hang: "
            f"look at the client's dmesg\n  ran: {shlex.join(command)}"
        )
        raise WorkloadError(msg) from error
    return _read(client.name, job, command, done)


def _read(name: str, job: FioJob, command: tuple[str, ...], done: Completed) -> Done:
    if done.stdout.startswith(_MISSING):
        raise WorkloadError(f"{name}: fio is missing: install the package fio there")
    before, report, after = _sections(done.stdout)
    in_flight = job.queue_depth * job.jobs
    try:
        result = parse(report, done.stderr, job.directions, runtime=job.runtime, in_flight=in_flight)
    except WorkloadError as error:
        raise _failed(name, str(error), command, done) from None
    if not done.ok:
        raise _failed(name, f"fio failed\n  {done.stderr.strip()[-1000:]}", command, done)
    evidence = {"argv": shlex.join(command), "fio.json": report.strip()}
    if done.stderr.strip():
        evidence["fio.stderr"] = done.stderr.strip()
    return Done(result, _cpu(before, after), evidence)


def _failed(name: str, why: str, command: tuple[str, ...], done: Completed) -> WorkloadError:
    return WorkloadError(f"{name}: {why}\n  ran, with exit status {done.status}: {shlex.join(command)}")


def _sections(stdout: str) -> tuple[str, str, str]:
    """Return the texts between our marks; what a killed command did not come to is empty."""
    before, _, rest = stdout.partition(f"{_FIO}\n")
    report, _, after = rest.rpartition(f"{_AFTER}\n") if f"{_AFTER}\n" in rest else (rest, "", "")
    return before, report, after


def _cpu(before: str, after: str) -> Busy | None:
    try:
        return busy(parse_stat(before), parse_stat(after))
    except ValueError:  # no /proc: the other figures are good, and a gate on this one says that it is missing
        return None
