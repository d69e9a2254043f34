"""Models of targets.yaml: pydantic models of the YAML (``…Entry``), and the frozen values made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

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
from storagetest.config.implementations import Implementation, numbers

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
"""Pattern of the name of a target, client, server or profile."""


class LocalEntry(Model):
    """The machine that runs pytest."""

    transport: Literal["local"]
    """How the machine is reached: local (the one that runs pytest), ssh, or slurm (a node of a job)."""


class SlurmEntry(Model):
    """A node of a Slurm job, reached by srun(1): pytest runs in the job, or on a host where srun finds it."""

    transport: Literal["slurm"]
    """How the machine is reached: local (the one that runs pytest), ssh, or slurm (a node of a job)."""

    node: Annotated[
        int,
        Field(ge=0, le=65535),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "integer", "minimum": 0, "maximum": 65535},
                    {"type": "string", "pattern": r"^\[[0-9]+-[0-9]+\]$"},  # of an entry for many hosts
                ]
            }
        ),
    ]
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
    """The TCP port; default: that of `ssh_config`, or 22."""

    user: Annotated[str | None, Field(min_length=1)] = None
    """The login's user name; default: that of `ssh_config`, or of the user that runs pytest."""

    key: LocalPath | None = None
    """The private key's file. Without it the agent's keys and the usual files are tried."""

    password: SecretText | None = None
    """The login's password, or the private key's passphrase."""

    known_hosts: LocalPath | None = None
    """The file of known host keys; default: that of `ssh_config`, or ~/.ssh/known_hosts."""

    host_key_check: bool = True
    """Whether the host must have a known key. Set this to false for disposable machines only."""

    jump: str | SshEntry | None = None
    """The jump host: a client's or server's name, or a separate entry."""

    ssh_config: LocalPath | None = None
    """An OpenSSH client configuration that `address` is looked up in."""

    connect_timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """Time limit for the name and the connection."""

    login_timeout: Annotated[Duration, Field(gt=0)] = 60.0
    """Time limit for the answer of sshd and the login; a machine under load takes long for them."""


class ImplementationEntry(Model):
    """The server software of a target; a plain name is one without a version."""

    name: Annotated[str, Field(pattern=NAME)]
    """Its name, as known issues name it, for example `knfsd`."""

    version: Annotated[str | None, Field(min_length=1)] = None
    """Its version, in quotes if it looks like a number; known issues of other versions are not expected."""

    @field_validator("version")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        if value is not None and numbers(value) is None:
            raise ValueError(f"expected a version that begins with a number, such as 6.1.0-47, not {value!r}")
        return value


def _named(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


class TargetEntry(Model):
    """Keys of every target, in addition to its protocol's options."""

    protocol: str
    """How the target is reached."""

    client: str | None = None
    """The one client to use; or give `clients`."""

    clients: Clients | None = None
    """The clients to use; without this and `client`: all clients of the file, in its order."""

    scale: Counts | None = None
    """The number of clients, from the first on, on which a performance case runs at once: a number, `all`, or
    a list of these, with one case for each."""

    data_set: Literal["own", "shared"] = "own"
    """Whether clients of a multi-client run have a data set each, or share one."""

    server: str | None = None
    """The server's name under `servers`, for counters and diagnostics of the server."""

    optional: bool = False
    """Whether cases are skipped, rather than errors, on a client that lacks the protocol."""

    implementation: Annotated[ImplementationEntry, BeforeValidator(_named)] | None = None
    """The server software and its version, for example `{name: knfsd, version: 6.1.0-47}`. Cases expect the
    known issues of that version."""

    same_data: Annotated[str | None, Field(pattern=NAME)] = None
    """The name of another target that serves the same files by another protocol, with the same paths relative
    to its root."""

    controls: Controls | None = None
    """Command lines for actions of an administrator: resize a device, isolate a client."""


class ProfileEntry(Model):
    """Size, duration and repeats of a load. Default: the built-in profile of that name, or `standard`."""

    size: Annotated[Size | None, Field(gt=0)] = None
    """The size of the data set."""

    ramp: Duration | None = None
    """How long the load runs before the measurement."""

    runtime: Annotated[Duration | None, Field(gt=0)] = None
    """How long the measurement of one repeat takes."""

    cooldown: Duration | None = None
    """How long the load runs after the measurement, so that all clients have load until its end."""

    repeats: Annotated[int | None, Field(ge=1)] = None
    """The minimum number of repeats."""

    max_repeats: Annotated[int | None, Field(ge=1)] = None
    """The maximum number of repeats until a gate is decided."""

    cold_size: Annotated[Size | None, Field(gt=0)] = None
    """The size of data that is read with cold caches; default: `size` if given, else twice the memory of
    client or server, the larger one."""

    steady: Literal["none", "pts", "slope"] | None = None
    """The steady state required before a measurement: none; five rounds whose throughput and p99 stay within
    20 % (pts, SNIA's rule); or a round over which throughput and latency change by 10 % at most (slope)."""

    steady_rounds: Annotated[int | None, Field(ge=5)] = None
    """The maximum number of rounds of ramp and runtime to reach the steady state."""

    sample_interval: Duration | None = None
    """The interval of counter samples during the load, and of its own timeline; 0: no samples."""

    start_spread: Annotated[Duration | None, Field(gt=0)] = None
    """The maximum time between the first I/Os of the clients of a run; beyond it the run is INVALID."""

    search: Annotated[int | None, Field(ge=0)] = None
    """The maximum number of measurements of a search for the maximum; 0: no search."""


@dataclass(frozen=True, slots=True)
class HostConfig:
    """A client or a server, and its transport. ``jump`` is the jump host.

    ``node`` and ``job`` are of a Slurm job (0: the job in which pytest runs).
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
    jump: HostConfig | None = None
    ssh_config: Path | None = None
    connect_timeout: float = 10.0
    login_timeout: float = 60.0
    place: str = ""
    node: int = 0
    job: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """A load's ``size`` in bytes; ``ramp``, ``runtime`` and ``cooldown`` in seconds; number of repeats.

    Counters are sampled every ``sample_interval`` seconds (0: no samples). ``cold_size`` is the size in bytes
    of data that is read with cold caches (None: twice the memory of client or server). ``steady`` is the rule
    for the steady state before the measurement, within ``steady_rounds`` rounds. If the first I/Os of the
    clients are more than ``start_spread`` seconds apart, the run is INVALID. A search for the maximum has at
    most ``search`` measurements (0: no search).
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
        # The scales of suites/papers: as small as emulated machines need it, and as published (B4).
        Profile(
            "lab",
            size=32 << 20,
            ramp=0.2,
            runtime=1.0,
            repeats=3,
            max_repeats=4,
            cold_size=32 << 20,
            start_spread=0.5,
            search=12,
        ),
        Profile("paper", size=10 << 30, ramp=120.0, runtime=300.0, repeats=3, max_repeats=12, search=40),
    )
}
"""The built-in profiles; the file may change them and add others."""


@dataclass(frozen=True, slots=True)
class ThresholdText:
    """The text of a threshold, such as ``p99 <= 5ms``, and its place."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """The gates of a workload, or of its cases whose parameters match all of ``where``."""

    workload: str
    where: Mapping[str, Any]
    gates: tuple[ThresholdText, ...]


NO_CONTROLS = Controls()


@dataclass(frozen=True, slots=True)
class Variant:
    """A target with one combination of its matrix.

    ``id`` is stable, and contains neither address nor secret. ``matrix`` maps the options of the matrix to
    their parts of the id. ``options`` is the protocol's model. Performance cases run on ``scale`` clients at
    once, one case per number, with a data set each or a ``shared`` one. ``same_data`` is the name of the
    target that serves the same files by another protocol.
    """

    id: str
    target: str
    protocol: str
    options: TargetOptions
    clients: tuple[HostConfig, ...]
    server: HostConfig | None
    optional: bool
    thresholds: tuple[ThresholdRule, ...]
    matrix: Mapping[str, str]
    place: str
    implementation: Implementation = field(default_factory=Implementation)
    scale: tuple[int | str, ...] = (1,)
    data_set: Literal["own", "shared"] = "own"
    same_data: str | None = None
    controls: Controls = NO_CONTROLS
