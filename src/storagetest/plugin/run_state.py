"""What one pytest process knows: the configuration, its connections, and what has broken so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from storagetest import config as targets_file
from storagetest.config.client_counts import asked_counts
from storagetest.errors import ConfigError, OptionRefused, StoragetestError, TargetDead
from storagetest.hosts.connect import connect
from storagetest.plugin.measure.thresholds import ThresholdResolver
from storagetest.plugin.progress.model import silent
from storagetest.protocols.base import Attachment, Protocol, protocols
from storagetest.report.base import Record
from storagetest.runner import PrefillCache
from storagetest.runner.locks import machine_id

if TYPE_CHECKING:
    from storagetest.config import Config, Machine, Profile, Variant
    from storagetest.config.comparisons import Comparison
    from storagetest.hosts import Host
    from storagetest.workloads.base import Workload

__all__ = ["KEY", "RunState"]

KEY = pytest.StashKey["RunState"]()


class RunState:
    """One per process (so one per xdist worker); found at ``config.stash[KEY]``."""

    def __init__(self, config: pytest.Config) -> None:
        self._options = config.option
        self._hosts: dict[str, Host] = {}
        self._broken: dict[str, str] = {}
        self.fills = PrefillCache()
        self.gating = ThresholdResolver(config)
        self.wanted = False
        self.teller = silent
        self.scale = asked_counts(config.option.st_scale)
        named: str | None = config.option.st_targets
        self.path = Path(named) if named else config.rootpath / "targets.yaml"
        self.loaded: Config | None = None
        if named or self.path.exists():
            self._load()

    def use_lab(self, path: Path) -> None:
        """Where no targets file is named and none is here, take that of the lab, ``path``."""
        if self.loaded is None and path.exists():
            self.path = path
            self._load()

    def _load(self) -> None:
        self.loaded = targets_file.load(self.path, overrides=self._options.st_set)
        self._check_selection()

    @property
    def config(self) -> Config:
        """The targets file; :class:`ConfigError` where there is none."""
        if self.loaded is None:
            msg = (
                f"no {self.path}: write one with `storagetest init ADDRESS`, name one with "
                "--st-targets FILE, or start a lab with `storagetest lab up`"
            )
            raise ConfigError(msg)
        return self.loaded

    @cached_property
    def profile(self) -> Profile:
        """The profile that was asked for."""
        return self.config.profile(self._options.st_profile)

    @cached_property
    def variants(self) -> dict[str, Variant]:
        """The selected variants by id, in the file's order."""
        globs: list[str] = self._options.st_target
        return {
            variant.id: variant
            for variant in self.config.variants
            if not globs
            or any(fnmatchcase(name, glob) for glob in globs for name in (variant.id, variant.target))
        }

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """The comparisons of which both sides are selected, by name."""
        return {
            each.name: each
            for each in self.config.comparisons
            if each.left.id in self.variants and each.right.id in self.variants
        }

    def workload(self, name: str) -> type[Workload[Any]]:
        """The workload called ``name``, registered or custom; :class:`ConfigError` suggests the nearest."""
        return cast("type[Workload[Any]]", self.config.workload(name))

    @staticmethod
    def protocol(variant: Variant) -> Protocol[Any]:
        """The protocol that attaches ``variant``."""
        return protocols.get(variant.protocol)()

    def client(self, variant: Variant) -> Machine:
        """The client that attaches ``variant`` when one is enough."""
        asked: str | None = self._options.st_client
        for machine in variant.clients:
            if asked in (None, machine.name):
                return machine
        pytest.skip(f"{variant.id}: not a target of client {asked}")

    def second_client(self, variant: Variant) -> Machine | None:
        """The other client of ``variant`` when it takes two: the next one that is another machine, if any."""
        first = machine_id(self.client(variant))
        return next((machine for machine in variant.clients if machine_id(machine) != first), None)

    def capabilities(self, variant: Variant) -> frozenset[str]:
        """What suites may ask of ``variant``: what its protocol can do, and what the file says of it.

        That is ``two_clients``, ``same_data`` (another target serves the same files) and, by its controls,
        ``resize`` and ``isolation``.
        """
        said = {
            "two_clients": len({machine_id(machine) for machine in variant.clients}) > 1,
            "same_data": variant.same_data is not None,
            "resize": variant.controls.resizes,
            "isolation": variant.controls.isolates,
        }
        more = {name for name, holds in said.items() if holds}
        return self.protocol(variant).capabilities(variant.options) | more

    def same_data(self, variant: Variant) -> Variant | None:
        """The first variant of the target that serves the same files by another protocol, if there is one."""
        return next((one for one in self.config.variants if one.target == variant.same_data), None)

    def clients(self, variant: Variant) -> tuple[Machine, ...]:
        """The clients of ``variant``; the one that was asked for goes first."""
        asked: str | None = self._options.st_client
        return tuple(sorted(variant.clients, key=lambda machine: machine.name != asked))

    def host(self, machine: Machine) -> Host:
        """The connection to a client or server, made at first use and kept."""
        if machine.name not in self._hosts:
            self._hosts[machine.name] = connect(machine)
        return self._hosts[machine.name]

    def monitored_hosts(self, variant: Variant) -> tuple[Host, ...]:
        """Return the machines that are sampled besides the client: the server, where one is given."""
        return () if variant.server is None else (self.host(variant.server),)

    def close(self) -> None:
        """Close every connection."""
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()

    def failure_reason(self, variant: Variant) -> str | None:
        """Why no case of this variant can run any more, if so."""
        return self._broken.get(variant.target) or self._broken.get(variant.id)

    def mark_failed(self, variant: Variant, error: StoragetestError) -> None:
        """Remember that ``variant`` cannot be used: the whole of its target if that is dead."""
        first_line = str(error).partition("\n")[0]
        if isinstance(error, TargetDead):
            self._broken[variant.target] = f"{variant.target} is dead: {first_line}"
        elif not isinstance(error, OptionRefused):
            self._broken[variant.id] = f"{variant.id} could not be attached: {first_line}"

    @contextmanager
    def attach(self, variant: Variant, client: Host) -> Iterator[Attachment]:
        """Attach ``variant``; a failure is remembered so that the other cases need not find it again."""
        protocol = self.protocol(variant)
        try:
            with protocol.attach(client, variant.options) as attachment:
                try:
                    yield attachment
                finally:
                    self.fills.forget(attachment)
        except StoragetestError as error:
            self.mark_failed(variant, error)
            raise

    def check_alive(self, variant: Variant, client: Host) -> None:
        """After a case broke: has the target died? Raises :class:`TargetDead` (and remembers it)."""
        try:
            self.protocol(variant).probe(client, variant.options)
        except TargetDead as error:
            self.mark_failed(variant, error)
            raise
        except StoragetestError:
            return  # the case's own error says more

    def _check_selection(self) -> None:
        _ = self.profile
        asked: str | None = self._options.st_client
        if asked and asked not in self.config.clients:
            msg = f"--st-client {asked}: no such client; there are: {', '.join(sorted(self.config.clients))}"
            raise ConfigError(msg)
        names = {name for variant in self.config.variants for name in (variant.id, variant.target)}
        for glob in self._options.st_target:
            if not any(fnmatchcase(name, glob) for name in names):
                msg = f"--st-target {glob}: matches no variant; `storagetest targets` lists them"
                raise ConfigError(msg)


RECORDS = pytest.StashKey[list[Record]]()
