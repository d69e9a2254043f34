"""A node of a Slurm job, as a host: every command is a job step on that node (srun(1)).

Theory. On a cluster the batch system says who may use which node and for how long, so nobody logs in to nodes
one after another: pytest runs within an allocation (``salloc -N 4 pytest …``, or a batch script), and its
clients are the job's nodes. The job is not ours: who made it gives it back, ``salloc`` by itself when pytest
ends.

Rules:

1. A step shares the node with the others (``--overlap``): a gate, a load and a sampler run at once.
2. On the node a command runs under the same supervisor as everywhere (:mod:`storagetest.hosts._supervised_host`).
   What an srun that was ended leaves behind is ended by its mark, through another step.
3. That a step could not be started is the host's fault, never the command's: srun says so before anything
   else.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import IO

from storagetest.hosts._output import ExitInfo, OutputBuffer
from storagetest.hosts._supervised_host import Unreachable
from storagetest.hosts.interactive import Channel
from storagetest.hosts.local import LocalHost

__all__ = ["SlurmHost", "srun"]

_JOB = "SLURM_JOB_ID"
_LONGEST = 1 << 16
_REFUSED = re.compile(r"srun: (error|fatal): (?!\S+: tasks? )")
"""How srun's words begin when there is no step; of one that failed it speaks by node and task."""


class SlurmHost(LocalHost):
    """The node number ``node`` (from 0) of the job with the id ``job`` (0: the one in which we run)."""

    far = True

    def __init__(self, name: str, node: int, *, job: int = 0) -> None:
        super().__init__(name)
        self._node, self._job = node, job
        self._own = threading.local()
        """Where this thread's srun puts its own words."""

    def _execute(
        self, argv: Sequence[str], *, stdin: bytes, out: OutputBuffer, err: OutputBuffer, limit: float
    ) -> ExitInfo:
        with tempfile.TemporaryFile() as words:
            self._own.words = words
            ended = super()._execute(argv, stdin=stdin, out=out, err=err, limit=limit)
            words.seek(0)
            said = words.read(_LONGEST).decode(errors="replace")
        if ended.status and _REFUSED.match(said):
            raise Unreachable(f"{self.name}: no step on node {self._node}: {said.strip()}")
        return ended

    def _start(self, argv: Sequence[str], limit: float) -> Channel:
        self._own.words = None
        return super()._start(argv, limit)

    def _popen(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        job = str(self._job or os.environ.get(_JOB, ""))
        if not job:
            how = "run pytest within one (salloc -N 4 pytest …), or say `job:`"
            raise Unreachable(f"{self.name}: there is no Slurm job: {how}")
        command = srun(job, self._node)
        words: IO[bytes] | None = self._own.words
        return super()._popen([*command, *argv]) if words is None else self._apart(command, argv, words)

    def _apart(
        self, command: Sequence[str], argv: Sequence[str], words: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start a step whose stderr is its own: srun mixes its words into it."""
        ours, theirs = os.pipe()
        try:
            process = subprocess.Popen(
                [*command, f"--error=/proc/self/fd/{theirs}", *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                pass_fds=[theirs],
                start_new_session=True,
            )
        except OSError as error:
            os.close(ours)
            raise Unreachable(f"{self.name}: cannot run `srun`: {error.strerror}") from error
        finally:
            os.close(theirs)
        process.stderr = os.fdopen(ours, "rb", 0)
        return process


def srun(job: str, node: int) -> tuple[str, ...]:
    """Return the command that runs what follows it as a step on one node of a job."""
    where = (f"--jobid={job}", f"--relative={node}", "--nodes=1", "--ntasks=1")
    return ("srun", *where, "--overlap", "--quiet", "--unbuffered", "--chdir=/")
