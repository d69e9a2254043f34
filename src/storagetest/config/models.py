"""What targets.yaml says: the pydantic border (``…Entry``) and the frozen values that come out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from storagetest.config.base import (
    Address,
    Duration,
    LocalPath,
    Model,
    Port,
    SecretText,
    Size,
    TargetOptions,
)
from storagetest.config.client_counts import Clients, Counts
from storagetest.config.controls import Controls

__all__ = [
    "NAME",
    "PROFILES",
    "LocalEntry",
    "Machine",
    "Profile",
    "ProfileEntry",
    "SlurmEntry",
    "SshEntry",
    "TargetEntry",
    "ThresholdRule",
    "ThresholdText",
    "Variant",
]

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
"""What a target, client, server or profile may be called."""


class LocalEntry(Model):
    """The machine that runs pytest."""

    transport: Literal["local"]
    """How the machine is reached: local (the one that runs pytest), ssh, or slurm (a node of a job)."""


class SlurmEntry(Model):
    """A node of a Slurm job, reached by srun(1): pytest runs within the job, or where srun knows it."""

    transport: Literal["slurm"]
    """How the machine is reached: local (the one that runs pytest), ssh, or slurm (a node of a job)."""

    node: Annotated[int, Field(ge=0, le=65535)]
    """Which of the job's nodes, counted from 0."""

    job: Annotated[int | None, Field(ge=1)] = None
    """The job's id; that of the job in which pytest runs (SLURM_JOB_ID)."""


class SshEntry(Model):
    """A machine reached over SSH."""

    transport: Literal["ssh"] = "ssh"
    """How the machine is reached: local (the one that runs pytest), ssh, or slurm (a node of a job)."""

    address: Address
    """The host's name or IP address, or an alias that `ssh_config` resolves."""

    port: Port | None = None
    """The TCP port; 22, or what `ssh_config` says."""

    user: Annotated[str | None, Field(min_length=1)] = None
    """Whom to log in as; the one who runs pytest, or whom `ssh_config` says."""

    key: LocalPath | None = None
    """The private key's file. Without it the agent's keys and the usual files are tried."""

    password: SecretText | None = None
    """The login's password, or the private key's passphrase."""

    known_hosts: LocalPath | None = None
    """The file of known host keys; ~/.ssh/known_hosts, or what `ssh_config` says."""

    host_key_check: bool = True
    """Whether the host must show a known key. Only a throw-away machine should set this to false."""

    jump: str | SshEntry | None = None
    """The machine to go through: a client's or server's name, or an entry of its own."""

    ssh_config: LocalPath | None = None
    """An OpenSSH client configuration that `address` is looked up in."""

    connect_timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """How long a connection and a login may take."""


class TargetEntry(Model):
    """What every target may say beside its protocol's options."""

    protocol: str
    """How the target is reached."""

    client: str | None = None
    """The one client to use; or give `clients`."""

    clients: Clients | None = None
    """The clients to use; all of the file's, in its order, where neither this nor `client` is given."""

    scale: Counts | None = None
    """On how many of its clients, from the first on, a measuring case runs at once: 1, or a number, `all`, or
    a list of these, each of which is a case of its own."""

    data_set: Literal["own", "shared"] = "own"
    """Whether clients that work at once have a data set each, or one that they share."""

    server: str | None = None
    """The serving machine, by its name under `servers`, where it may be looked at."""

    optional: bool = False
    """Whether cases are skipped, rather than errors, on a client that lacks the protocol."""

    implementation: Annotated[str | None, Field(pattern=NAME)] = None
    """The server implementation, for example `knfsd`. Cases expect its known issues."""

    same_data: Annotated[str | None, Field(pattern=NAME)] = None
    """Another target, by its name: it serves the same files by another protocol, and from its root on they
    have the same names."""

    controls: Controls | None = None
    """Command lines for what takes an administrator: a device that grows, a client that is cut off."""


class ProfileEntry(Model):
    """How much load, how often. What is left out is the built-in profile's, or else that of `standard`."""

    size: Annotated[Size | None, Field(gt=0)] = None
    """The size of the data set."""

    ramp: Duration | None = None
    """How long load is put on before anything is counted."""

    runtime: Annotated[Duration | None, Field(gt=0)] = None
    """How long one repeat is measured."""

    cooldown: Duration | None = None
    """How long load goes on after the counting ends, so that whoever began last is not measured alone."""

    repeats: Annotated[int | None, Field(ge=1)] = None
    """How many repeats are run at least."""

    max_repeats: Annotated[int | None, Field(ge=1)] = None
    """The budget: how many repeats may be run until a gate is decided."""

    cold_size: Annotated[Size | None, Field(gt=0)] = None
    """The size of what is read with cold caches; `size` where that is given, or else twice the memory of
    client or server, whichever has more."""

    steady: Literal["none", "pts", "slope"] | None = None
    """What is waited for before anything counts: nothing; five rounds whose throughput and p99 stay within
    20 % (pts, SNIA's rule); or a round over which throughput and latency move by 10 % at most (slope)."""

    steady_rounds: Annotated[int | None, Field(ge=5)] = None
    """How many rounds of ramp and runtime may be spent on that."""

    sample_interval: Duration | None = None
    """How often counters are read beside the load, and how finely its own course is kept; 0: not at all."""

    start_spread: Annotated[Duration | None, Field(gt=0)] = None
    """How far apart the first I/Os of clients that begin together may be; beyond it a run is INVALID."""

    search: Annotated[int | None, Field(ge=0)] = None
    """How many measurements a search for the maximum may take; 0: none is made."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A client or a server, and how it is reached. ``jump`` is the machine to go through.

    ``node`` and ``job`` are of a Slurm job (0: that in which we run).
    """

    name: str
    transport: Literal["local", "ssh", "slurm"]
    address: str = ""
    port: int | None = None
    user: str | None = None
    key: Path | None = None
    password: SecretText | None = None
    known_hosts: Path | None = None
    host_key_check: bool = True
    jump: Machine | None = None
    ssh_config: Path | None = None
    connect_timeout: float = 10.0
    place: str = ""
    node: int = 0
    job: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """How much load: ``size`` in bytes; ``ramp``, ``runtime`` and ``cooldown`` in seconds; how many repeats.

    Counters are sampled every ``sample_interval`` seconds (0: not at all). ``cold_size`` is the size in bytes
    for what is read with cold caches (None: twice the memory of client or server). ``steady`` is the rule by
    which a target has settled before anything counts, within ``steady_rounds`` rounds. The first I/Os of many
    clients are ``start_spread`` seconds apart at most, or the run is INVALID. A search for the maximum takes
    ``search`` measurements at most (0: none is made).
    """

    name: str
    size: int
    ramp: float
    runtime: float
    repeats: int
    max_repeats: int
    sample_interval: float = 1.0
    cold_size: int | None = None
    steady: Literal["none", "pts", "slope"] = "none"
    steady_rounds: int = 25
    cooldown: float = 0.0
    start_spread: float = 0.010
    search: int = 0


PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("smoke", size=16 << 20, ramp=0.1, runtime=0.6, repeats=3, max_repeats=8, cold_size=16 << 20),
        Profile("standard", size=1 << 30, ramp=5.0, runtime=30.0, repeats=3, max_repeats=12, cooldown=0.5),
        Profile("thorough", size=8 << 30, ramp=15.0, runtime=120.0, repeats=5, max_repeats=20, cooldown=1.0),
    )
}
"""The built-in profiles, which the file may change and add to."""


@dataclass(frozen=True, slots=True)
class ThresholdText:
    """A threshold as it was written, such as ``p99 <= 5ms``, and where."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """The gates of a workload, or only of its cases whose parameters hold all of ``where``."""

    workload: str
    where: Mapping[str, Any]
    gates: tuple[ThresholdText, ...]


NO_CONTROLS = Controls()


@dataclass(frozen=True, slots=True)
class Variant:
    """One target in one combination of its matrix.

    ``id`` is stable, and holds neither address nor secret. ``matrix`` maps the options that tell it from its
    siblings to their parts of the id. ``options`` is the protocol's own model. Measuring cases run on
    ``scale`` clients at once, one case for each number there, with a data set each or a ``shared`` one.
    ``same_data`` names the target that serves the same files by another protocol.
    """

    id: str
    target: str
    protocol: str
    options: TargetOptions
    clients: tuple[Machine, ...]
    server: Machine | None
    optional: bool
    thresholds: tuple[ThresholdRule, ...]
    matrix: Mapping[str, str]
    place: str
    implementation: str = ""
    scale: tuple[int | str, ...] = (1,)
    data_set: Literal["own", "shared"] = "own"
    same_data: str | None = None
    controls: Controls = NO_CONTROLS
