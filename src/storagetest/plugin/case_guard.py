"""Hooks around every case on a target: locks, skip after a target failure, option-mismatch check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from storagetest.config import Variant
from storagetest.errors import StoragetestError
from storagetest.plugin.attach import fail_on_option_mismatch
from storagetest.plugin.conformance.client_cases import is_exclusive, under_way
from storagetest.plugin.items import fixtures_of
from storagetest.plugin.measure.client_selection import item_machines
from storagetest.plugin.output import diagnostics
from storagetest.plugin.parametrize import second_variant
from storagetest.plugin.progress.model import waiting
from storagetest.plugin.run_state import KEY
from storagetest.protocols.base import Attachment
from storagetest.runner.locks import acquire, machine_id


class CaseGuard:
    """Locks clients and server of a case from setup to teardown. Registered as a separate plugin."""

    def __init__(self, config: pytest.Config) -> None:
        self._state = config.stash[KEY]
        self._timeout: float = config.option.st_lock_timeout
        self._locks: ExitStack | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip if the target has failed before; then wait for the locks on clients and server."""
        variant = self._state.variant_of(item)
        if variant is None:
            return
        diagnostics.set_allure_identity(item, variant, self._state)
        reason = self._state.failure_reason(variant)
        if reason:
            pytest.skip(reason)
        if self._locks is None:  # otherwise the batch that the item belongs to holds them
            self._locks = self._lock(item, variant)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fail on an option mismatch. After an error, check whether the target still responds."""
        variant = self._state.variant_of(item)
        attachment = getattr(item, "funcargs", {}).get("attachment")
        if variant is None or not isinstance(attachment, Attachment):
            yield
            return
        fail_on_option_mismatch(variant, attachment)
        try:
            yield
        except StoragetestError:
            self._state.check_alive(variant, attachment)
            raise

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Iterator[None]:
        """Release the locks, unless the next item belongs to the same batch of client cases."""
        try:
            yield
        finally:
            self._state.progress.send(None)
            if self._locks is not None and not under_way(nextitem):
                self._locks.close()
                self._locks = None

    def _server(self, variant: Variant) -> str:
        """Return the identity of the serving machine: of the configured ``server``, or else the address.

        The same address may belong to different machines in different networks, for example in two labs.
        """
        if variant.server is not None:
            return machine_id(variant.server)
        return str(self._state.protocol(variant).server(variant.options))

    def _lock(self, item: pytest.Item, variant: Variant) -> ExitStack:
        partner = second_variant(item, self._state)
        servers = [f"server:{self._server(each)}" for each in (variant, partner) if each is not None]
        machines = [*item_machines(item, variant, self._state)]
        fixtures = set(fixtures_of(item))
        measures = bool({"measure", "find_maximum", "comparison"} & fixtures)
        # A load on several clients and a case of two sides are judged by counters: no other run may use them.
        counted = measures or len(machines) > 1 or "client_sides" in fixtures
        if "second_client" in fixtures and (second := self._state.second_client(variant)) is not None:
            machines.append(second)
        clients = [f"client:{machine_id(machine)}" for machine in machines]
        exclusive = clients if counted else []
        if measures or is_exclusive(item):
            exclusive = exclusive + servers
        stack = ExitStack()
        self._state.progress.send(waiting(variant.id, item.name))
        try:
            locks = acquire(
                exclusive=exclusive, shared=clients + servers, timeout=self._timeout, purpose=item.nodeid
            )
            stack.enter_context(locks)
        finally:
            self._state.progress.send(None)
        return stack
