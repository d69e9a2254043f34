"""A Slurm in the lab: slurmctld on the appliance, a slurmd on each client, and pytest in a job.

The image has neither Slurm nor pytest. Both come in an overlay: this machine's own, as Debian packages and as
installed by pip, so this is for a machine that runs the Debian of the image, and a Python like its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from attach_helpers import RecordingHost, connect
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from storagetest.lab import Lab, overlays
from storagetest.lab.paths import cache_root
from storagetest.polling import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PACKAGES = ("munge", "slurm-client", "slurmctld", "slurmd", "slurm-wlm-basic-plugins")
PYTHON = (3, 11)
"""The image's, whose extension modules have to be like ours."""

CONFIG = """\
ClusterName=lab
SlurmctldHost=appliance(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
NodeName=client1 NodeAddr=10.77.0.11 CPUs=1
NodeName=client2 NodeAddr=10.77.0.12 CPUs=1
PartitionName=p Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""

# slurmd wants a cgroup of its own, which systemd gives it where there is one.
CGROUP_CONFIG = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"
READY = r"""
mkdir -p /run/munge /var/log/munge /var/lib/munge /var/spool/slurmctld /var/spool/slurmd
chmod 0755 /run/munge && munged --force || exit
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit
mkdir -p /sys/fs/cgroup/system.slice
"$1" >/tmp/output 2>&1 || { cat /tmp/output; exit 1; }
"""

TARGETS = """\
version: 1
clients:
  node0: {transport: slurm, node: 0}
  node1: {transport: slurm, node: 1}
targets:
  nfs: {protocol: nfs, address: 10.77.0.1, export: /a, version: "4.2", clients: all}
profiles:
  tiny: {size: 4MiB, ramp: 0, runtime: 1s, repeats: 2, max_repeats: 2, start_spread: 2s}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RecordingHost]]:
    """The machines by name, with two idle nodes."""
    if sys.version_info[:2] != PYTHON:
        pytest.skip(f"the image's Python is 3.{PYTHON[1]}, and ours has other extension modules")
    if lacking := [name for name in PACKAGES if not _files_of(name)]:
        pytest.skip(f"{', '.join(lacking)}: not installed here as packages of Debian's")
    overlay = tmp_path_factory.mktemp("overlay")
    _lay_slurm(overlay)
    _lay_pytest(overlay)
    hashed = overlays.describe(overlay).hash
    lab = Lab.up(f"slurm-{os.getpid()}", clients=2, owner=os.getpid(), overlay=overlay)
    machines = {name: connect(lab, name) for name in ("appliance", "client1", "client2")}
    try:
        shutil.rmtree(overlay)
        _start(machines)
        yield machines
    finally:
        for machine in machines.values():
            machine.close()
        lab.down()
        for packed in (cache_root() / "overlays").glob(f"{hashed}-*"):  # no other lab uses it
            packed.unlink()


def test_pytest_in_a_job_measures_on_its_nodes(cluster: dict[str, RecordingHost]) -> None:
    suite = "/opt/storagetest/suites/performance/test_small_random_read.py"
    arguments = f"{suite} -k 4KiB --st-targets /root/targets.yaml --st-profile tiny --st-scale 1,2"
    run = f"python3 -m pytest {arguments} --st-results /root/results.jsonl -p no:cacheprovider"
    path = "PYTHONPATH=/opt/storagetest/site:/opt/storagetest/src"
    command = f"cd /root && exec salloc --nodes=2 --time=10 env {path} COLUMNS=100 {run}"
    appliance = cluster["appliance"]
    done = appliance.run(["sh", "-c", command], deadline=500.0, check=False)
    output = done.stdout + done.stderr
    assert done.status == 0, output
    records = [json.loads(line)["run"] for line in appliance.pull("/root/results.jsonl").splitlines()]
    assert sorted(run["client"] for run in records) == ["node0", "node0, node1"], output
    assert "2 clients (node0, node1) began within" in output
    print(output)  # shown with -s
    for name in ("client1", "client2"):
        assert cluster[name].left() == []
    assert appliance.run(["squeue", "--noheader"], deadline=30.0).stdout == ""


def _files_of(package: str) -> list[Path]:
    """The files of an installed package that a program needs; none where it is not installed."""
    if shutil.which("dpkg") is None:
        return []
    listed = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True, timeout=60, check=False)
    every = [Path(line) for line in listed.stdout.splitlines()]
    return [
        path for path in every if path.is_relative_to("/usr") and path.is_file() and "share" not in path.parts
    ]


def _lay_slurm(overlay: Path) -> None:
    """Copy Slurm, and the libraries that it is linked with; the C library is the image's own."""
    files = [path for package in PACKAGES for path in _files_of(package)]
    linked = subprocess.run(["ldd", *files], capture_output=True, text=True, timeout=60, check=False).stdout
    libraries = {Path(line.split()[2]) for line in linked.splitlines() if "=> /" in line}
    for path in [*files, *(one for one in libraries if not one.name.startswith(("libc.", "libm.")))]:
        place = path.relative_to("/usr" if path.is_relative_to("/usr") else "/")
        there = overlay / "usr" / place.with_name(place.name.removesuffix("-wlm"))  # Debian's alternatives
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, there)


def _lay_pytest(overlay: Path) -> None:
    """Copy storagetest and the installed packages that it needs."""
    place = overlay / "opt" / "storagetest"
    home = Path(sysconfig.get_path("purelib"))
    needed: set[str] = set()
    _need("storagetest", needed)
    for name in needed:
        for file in metadata.files(name) or ():
            path = Path(str(file.locate())).resolve()
            if path.is_relative_to(home) and path.is_file():
                there = place / "site" / path.relative_to(home)
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, there)
    shutil.copytree(ROOT / "src", place / "src", symlinks=True)
    shutil.copytree(ROOT / "suites", place / "suites")
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy2(ROOT / name, place / name)


def _need(name: str, needed: set[str]) -> None:
    """Add a distribution and all that it requires to ``needed``."""
    name = canonicalize_name(name)
    if name in needed:
        return
    needed.add(name)
    for text in metadata.requires(name) or ():
        wanted = Requirement(text)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            _need(wanted.name, needed)


def _start(machines: dict[str, RecordingHost]) -> None:
    """Start munged and Slurm's daemons, and wait until both nodes are idle."""
    key = os.urandom(1024)
    for name, machine in machines.items():
        machine.push(key, "/etc/munge/munge.key", mode=0o600)
        machine.push(CONFIG.encode(), "/etc/slurm/slurm.conf", mode=0o644)
        machine.push(CGROUP_CONFIG.encode(), "/etc/slurm/cgroup.conf", mode=0o644)
        daemon = "slurmctld" if name == "appliance" else "slurmd"
        machine.run(["sh", "-c", READY, "ready", daemon], deadline=60.0)
    appliance = machines["appliance"]
    appliance.push(TARGETS.encode(), "/root/targets.yaml", mode=0o644)

    def idle() -> bool:
        output = appliance.run(["sinfo", "--noheader", "--format=%D %t"], deadline=30.0, check=False)
        return output.stdout.split() == ["2", "idle"]

    wait_until(idle, 90.0, "two idle nodes", interval=1.0)
