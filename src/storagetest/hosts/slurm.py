"""A node of a Slurm job as a host: every command is a job step on that node (srun(1)).

Theory. On a cluster the batch system allocates nodes, so storagetest does not log in to them: pytest runs in
an allocation (``salloc -N 4 pytest …``, or a batch script), and its clients are the job's nodes. storagetest
does not end the job; ``salloc`` ends it when pytest ends.

Rules:

1. A step shares the node with other steps (``--overlap``): a start barrier, a load and a sampler run at once.
2. On the node a command runs under the same supervisor as everywhere
   (:mod:`storagetest.hosts._supervised_host`). Processes that an ended srun leaves behind are killed by their
   environment variable, in another step.
3. A step that cannot be started is an error of the host, not of the command: srun's own stderr shows it.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO

from storagetest.hosts._output import ExitInfo, OutputBuffer
from storagetest.hosts._supervised_host import Unreachable
from storagetest.hosts.fast_exec import collect_output
from storagetest.hosts.interactive import Channel
from storagetest.hosts.local import LocalHost, PipeChannel

_JOB = "SLURM_JOB_ID"
_MAX_STDERR = 1 << 16
_REFUSED = re.compile(r"srun: (error|fatal): (?!\S+: tasks? )")
"""srun's stderr if the step was not started; for a step that failed it names node and task."""


class SlurmHost(LocalHost):
    """Node number ``node`` (from 0) of the job ``job`` (0: the job in which the controller runs)."""

    expensive_exec = True

    def __init__(self, name: str, node: int, *, job: int = 0) -> None:
        super().__init__(name)
        self._node, self._job = node, job

    def _execute(
        self, argv: Sequence[str], *, stdin: bytes, out: OutputBuffer, err: OutputBuffer, limit: float
    ) -> ExitInfo:
        with tempfile.TemporaryFile() as stderr:
            channel = PipeChannel(self._spawn_with_own_stderr(argv, stderr))
            ended = collect_output(channel, stdin=stdin, out=out, err=err, limit=limit)
            stderr.seek(0)
            text = stderr.read(_MAX_STDERR).decode(errors="replace")
        if ended.status and _REFUSED.match(text):
            raise Unreachable(f"{self.name}: no step on node {self._node}: {text.strip()}")
        return ended

    def _start(self, argv: Sequence[str], limit: float) -> Channel:
        return super()._start([*self._srun(), *argv], limit)

    def _spawn_with_own_stderr(self, argv: Sequence[str], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a step with an stderr of its own; srun writes its messages to ``stderr``."""
        read_end, write_end = os.pipe()
        try:
            step = [*self._srun(), f"--error=/proc/self/fd/{write_end}", *argv]
            process = self._spawn(step, stderr=stderr, pass_fds=[write_end])
        except Unreachable:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        process.stderr = os.fdopen(read_end, "rb", 0)
        return process

    def _srun(self) -> tuple[str, ...]:
        job = str(self._job or os.environ.get(_JOB, ""))
        if not job:
            hint = "run pytest within one (salloc -N 4 pytest …), or set `job:`"
            raise Unreachable(f"{self.name}: no Slurm job: {hint}")
        return srun(job, self._node)


def srun(job: str, node: int) -> tuple[str, ...]:
    """Return the srun command line to which a step's argv is appended."""
    where = (f"--jobid={job}", f"--relative={node}", "--nodes=1", "--ntasks=1")
    return ("srun", *where, "--overlap", "--quiet", "--unbuffered", "--chdir=/")
