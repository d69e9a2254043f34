"""The state of one pytest process: configuration, connections, and failed targets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from storagetest import config as targets_file
from storagetest.config.client_counts import asked_counts
from storagetest.config.controls import COMMANDS
from storagetest.config.variant_filter import matches_name
from storagetest.errors import (
    ConfigError,
    DeadlineExceeded,
    HostError,
    OptionRefused,
    StoragetestError,
    TargetDead,
)
from storagetest.hosts.connect import connect
from storagetest.plugin.items import item_variant
from storagetest.plugin.measure.thresholds import ThresholdResolver
from storagetest.plugin.options import targets_path
from storagetest.plugin.progress.model import silent
from storagetest.polling import wait_until
from storagetest.protocols.base import Attachment, AttachmentKind, Protocol, protocols
from storagetest.runner import PrefillCache
from storagetest.runner.locks import machine_id

if TYPE_CHECKING:
    from storagetest.config import Config, HostConfig, Profile, Variant
    from storagetest.config.comparisons import Comparison
    from storagetest.hosts import Host
    from storagetest.workloads.base import Workload

KEY = pytest.StashKey["RunState"]()

_CLIENT_TIMEOUT = 90.0
"""Timeout in seconds of one command on a client that may be slow, its login included (chosen)."""

_SLOW = 3.0
"""Seconds for one command from which on a client may be the cause of a silence (chosen)."""

_ATTACHMENT_TIMEOUT = 30.0
"""Timeout in seconds of one access to a file system or device that may be lost (chosen)."""

CONFIGURED_CAPABILITIES = ("two_clients", "same_data", *COMMANDS)
"""The capabilities of a variant by its clients, its ``same_data`` and its controls in the targets file."""


class RunState:
    """The state of one process (so one for each xdist worker), at ``config.stash[KEY]``."""

    def __init__(self, config: pytest.Config) -> None:
        self._options = config.option
        self._hosts: dict[str, Host] = {}
        self._failures: dict[str, str] = {}
        self._capabilities: dict[str, frozenset[str]] = {}
        self.failed_controls: dict[str, str] = {}
        self.prefills = PrefillCache()
        self.thresholds = ThresholdResolver(config)
        self.targets_needed = False
        self.progress = silent
        self.scale = asked_counts(config.option.st_scale)
        option: str | None = config.option.st_targets
        self._client: str | None = config.option.st_client
        self.path = targets_path(config)
        self.loaded: Config | None = None
        if option or self.path.exists():
            self._load()

    def use_lab(self, path: Path) -> None:
        """Use the lab's targets file ``path`` if no other is loaded."""
        if self.loaded is None and path.exists():
            self.path = path
            self._load()

    def _load(self) -> None:
        self.loaded = targets_file.load(self.path, overrides=self._options.st_set)
        self._check_selection()

    @property
    def config(self) -> Config:
        """The loaded targets file. Raises :class:`ConfigError` if there is none."""
        if self.loaded is None:
            raise ConfigError(
                f"{self.path} does not exist: create it with `storagetest init ADDRESS`, name another with "
                "--st-targets FILE, or start a lab with `storagetest lab up`"
            )
        return self.loaded

    @cached_property
    def profile(self) -> Profile:
        """The selected profile."""
        return self.config.profile(self._options.st_profile)

    @cached_property
    def variants(self) -> dict[str, Variant]:
        """The selected variants by id, in the file's order."""
        globs: list[str] = self._options.st_target
        return {
            variant.id: variant
            for variant in self.config.variants
            if not globs or matches_name(variant, globs)
        }

    def variant_of(self, item: pytest.Item) -> Variant | None:
        """The variant that ``item`` runs on, or None."""
        identifier = item_variant(item)
        return None if identifier is None else self.variants[identifier]

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """The comparisons of which both sides are selected, by name."""
        return {
            each.name: each
            for each in self.config.comparisons
            if each.left.id in self.variants and each.right.id in self.variants
        }

    def workload(self, name: str) -> type[Workload[Any]]:
        """The workload ``name``, registered or custom. Raises :class:`ConfigError` with a suggestion."""
        return cast("type[Workload[Any]]", self.config.workload(name))

    @staticmethod
    def protocol(variant: Variant) -> Protocol[Any]:
        """The protocol that attaches ``variant``."""
        return protocols.get(variant.protocol)()

    def client(self, variant: Variant) -> HostConfig:
        """The client of a case that runs on one; skip if ``--st-client`` is not one of the variant's."""
        for machine in variant.clients:
            if self._client in (None, machine.name):
                return machine
        pytest.skip(f"{variant.id}: not a target of client {self._client}")

    def second_client(self, variant: Variant) -> HostConfig | None:
        """The first client of ``variant`` on another machine than :meth:`client`, or None."""
        first = machine_id(self.client(variant))
        return next((machine for machine in variant.clients if machine_id(machine) != first), None)

    def capabilities(self, variant: Variant) -> frozenset[str]:
        """The capabilities of ``variant``: those of its protocol, and those by the targets file.

        The latter are :data:`CONFIGURED_CAPABILITIES`.
        """
        known = self._capabilities.get(variant.id)
        if known is not None:  # tens of thousands of cases ask
            return known
        present = (
            len({machine_id(machine) for machine in variant.clients}) > 1,
            variant.same_data is not None,
        )
        names = set(compress(CONFIGURED_CAPABILITIES, present)) | variant.controls.capabilities
        self._capabilities[variant.id] = self.protocol(variant).capabilities(variant.options) | names
        return self._capabilities[variant.id]

    def lacking(self, variant: Variant, needs: Iterable[str]) -> str:
        """Return which of ``needs`` the variant does not have, as a reason to skip; "" if it has all."""
        lacking = frozenset(needs) - self.capabilities(variant)
        return f"{variant.id} has no {', '.join(sorted(lacking))}" if lacking else ""

    def same_data(self, variant: Variant) -> Variant | None:
        """The first variant of the target that serves the same files by another protocol, or None."""
        return next((one for one in self.config.variants if one.target == variant.same_data), None)

    def clients(self, variant: Variant) -> tuple[HostConfig, ...]:
        """The clients of ``variant``, with that of ``--st-client`` first."""
        return tuple(sorted(variant.clients, key=lambda machine: machine.name != self._client))

    def host(self, machine: HostConfig) -> Host:
        """The connection to a client or server, opened at the first use."""
        if machine.name not in self._hosts:
            self._hosts[machine.name] = connect(machine)
        return self._hosts[machine.name]

    def monitored_hosts(self, variant: Variant) -> tuple[Host, ...]:
        """Return the machines that are sampled besides the client: the server, if it is configured."""
        return () if variant.server is None else (self.host(variant.server),)

    def close(self) -> None:
        """Close every connection."""
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()

    def failure_reason(self, variant: Variant) -> str | None:
        """Return why no case of this variant can run any more, or None."""
        return self._failures.get(variant.target) or self._failures.get(variant.id)

    def mark_failed(self, variant: Variant, error: StoragetestError) -> None:
        """Record that ``variant`` cannot be used; if the target is dead, none of its variants can."""
        first_line = str(error).partition("\n")[0]
        if isinstance(error, TargetDead):
            self._failures[variant.target] = f"{variant.target} is dead: {first_line}"
        elif not isinstance(error, OptionRefused):
            self._failures[variant.id] = f"{variant.id} could not be attached: {first_line}"

    @contextmanager
    def attach(self, variant: Variant, client: Host) -> Iterator[Attachment]:
        """Attach ``variant``. A failure is recorded, so that the variant's other cases are skipped."""
        try:
            with ExitStack() as stack:
                attachment = self._attached(stack, variant, client)
                try:
                    yield attachment
                finally:
                    self.prefills.forget(attachment)
        except StoragetestError as error:
            self.mark_failed(variant, error)
            raise

    def _attached(self, stack: ExitStack, variant: Variant, client: Host) -> Attachment:
        """Attach ``variant``, once more if the client may have been too slow: all cases depend on it."""
        attach = partial(self.protocol(variant).attach, client, variant.options)
        try:
            return stack.enter_context(attach())
        except StoragetestError as error:
            if not _was_silent(error) or _answer_time(client) is None:
                raise
        return stack.enter_context(attach())

    def check_alive(self, variant: Variant, attachment: Attachment) -> None:
        """Look at the target after an error of a case, and wait for it, at most its deadline.

        A client that does not run a command can see no target: nothing is recorded then. After a silence a
        client that was slow is asked to look once more. Raises :class:`TargetDead`, and records it, if the
        target does not respond, or the attachment is lost: no case of the target can run.
        """
        before = _answer_time(attachment.client)
        if before is None:
            return
        try:
            self._look_at(variant, attachment)
        except StoragetestError as error:
            after = _answer_time(attachment.client) if _was_silent(error) else 0.0
            if after is None:
                return
            if not _was_silent(error) or max(before, after) < _SLOW:
                self._mark_dead(variant, error)
                return
            try:
                self._look_at(variant, attachment)
            except StoragetestError as again:
                self._mark_dead(variant, again)

    def _look_at(self, variant: Variant, attachment: Attachment) -> None:
        dead: list[TargetDead] = []

        def responds() -> bool:
            try:
                self.protocol(variant).probe(attachment.client, variant.options)
            except TargetDead as error:
                dead[:] = [error]
                return False
            return True

        with suppress(DeadlineExceeded):
            wait_until(responds, variant.options.deadline, "the target")
            dead.clear()
        if dead:
            raise dead[0]
        _check_attachment(attachment)

    def _mark_dead(self, variant: Variant, error: StoragetestError) -> None:
        """Record and raise ``error`` if the target is dead; otherwise the case's own error is better."""
        if isinstance(error, TargetDead):
            self.mark_failed(variant, error)
            raise error

    def _check_selection(self) -> None:
        _ = self.profile
        if self._client is not None and self._client not in self.config.clients:
            known = ", ".join(sorted(self.config.clients))
            raise ConfigError(f"--st-client {self._client}: no such client. There are: {known}")
        for glob in self._options.st_target:
            if not any(matches_name(variant, [glob]) for variant in self.config.variants):
                raise ConfigError(f"--st-target {glob}: matches no variant. `storagetest targets` lists them")


def _was_silent(error: StoragetestError) -> bool:
    """Whether a command did not end in time, or the client could not be reached."""
    return isinstance(error, HostError) or isinstance(error.__cause__, DeadlineExceeded)


def _answer_time(client: Host) -> float | None:
    """Return the seconds that ``client`` takes for a command, login included; None if it runs none."""
    began = time.monotonic()
    try:
        client.run(["true"], deadline=_CLIENT_TIMEOUT)
    except StoragetestError:
        return None
    return time.monotonic() - began


def _check_attachment(attachment: Attachment) -> None:
    """Raise :class:`TargetDead` if the client reports the attachment's path as lost, or does not respond."""
    path, client = attachment.path, attachment.client
    if attachment.kind is AttachmentKind.FILESYSTEM:
        argv = ["stat", "--file-system", "--", path]
    else:
        argv = ["dd", f"if={path}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none"]
    try:
        done = client.run(argv, deadline=_ATTACHMENT_TIMEOUT, check=False)
    except DeadlineExceeded as error:
        raise TargetDead(f"{client.name}: {path} does not respond: {error}") from error
    if not done.ok:
        reason = done.stderr.strip().rpartition(": ")[2] or f"status {done.status}"
        raise TargetDead(f"{client.name}: {path} is lost: {reason}")
