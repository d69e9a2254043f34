"""A small Slurm cluster on loopback: munged, slurmctld, and a slurmd for each of two nodes."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from storagetest.polling import wait_until

NODES = 2
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PROGRAMS = ("munged", "slurmctld", "slurmd", "salloc", "scancel", "squeue", "srun")

_CONFIG = """\
ClusterName=st
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={home}/munge.sock
CredType=cred/munge
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool.%n
SlurmctldPidFile={home}/ctld.pid
SlurmdPidFile={home}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=p Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""


@dataclass(frozen=True)
class Slurm:
    """A running cluster: ``environment`` is what its commands need, ``job`` a job with all nodes."""

    environment: Mapping[str, str]
    job: int

    def output(self, *argv: str) -> str:
        """Run one of Slurm's commands and return its stdout."""
        environment = {**os.environ, **self.environment}
        return subprocess.check_output(argv, env=environment, stderr=subprocess.PIPE, text=True, timeout=60)


def missing_programs() -> list[str]:
    return [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]


@contextlib.contextmanager
def cluster(home: Path, ports: tuple[int, ...]) -> Iterator[Slurm]:
    """Start a cluster in ``home`` with a job on all nodes; end all of it at the exit."""
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    (home / "key").write_bytes(os.urandom(1024))
    (home / "key").chmod(0o600)
    (home / "state").mkdir()
    home.chmod(0o755)
    (home / "slurm.conf").write_text(_CONFIG.format(host=host, user=user, home=home, ports=ports))
    environment = {"SLURM_CONF": f"{home}/slurm.conf"}
    munge = [f"--{name}={home}/munge.{name}" for name in ("pid-file", "log-file", "seed-file")]
    munge += [f"--key-file={home}/key", f"--socket={home}/munge.sock"]
    daemons = [
        ["munged", "--foreground", "--force", *munge],
        ["slurmctld", "-D", "-c"],
        *(["slurmd", "-D", "-N", f"n{number}"] for number in range(NODES)),
    ]
    with contextlib.ExitStack() as stack:
        for argv in daemons:
            log = stack.enter_context((home / f"{argv[0]}{argv[-1][-2:]}.log").open("wb"))
            daemon = subprocess.Popen(
                argv, env={**os.environ, **environment, "PATH": PATH}, stdout=log, stderr=log
            )
            stack.callback(_end, daemon)
            if argv[0] == "munged":
                wait_until((home / "munge.sock").exists, 30, "munged's socket")
        slurm = Slurm(environment, 0)

        def idle() -> bool:
            with contextlib.suppress(subprocess.SubprocessError):
                return slurm.output("sinfo", "--noheader", "--format=%D %t").split() == [str(NODES), "idle"]
            return False

        wait_until(idle, 60, "two idle nodes", interval=0.5)
        slurm.output("salloc", f"--nodes={NODES}", "--no-shell", "--job-name=st", "--quiet")
        job = int(slurm.output("squeue", "--noheader", "--name=st", "--format=%A"))
        stack.callback(slurm.output, "scancel", str(job))
        yield Slurm(environment, job)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
