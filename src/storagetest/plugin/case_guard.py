"""What stands around every case that runs on a target: locks, known breakage, silent changes, diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from storagetest.config import Variant
from storagetest.errors import StoragetestError
from storagetest.plugin.attach import fail_on_option_mismatch
from storagetest.plugin.conformance.client_cases import is_exclusive, under_way
from storagetest.plugin.measure.client_selection import item_machines
from storagetest.plugin.output import diagnostics
from storagetest.plugin.parametrize import item_variant, second_variant
from storagetest.plugin.progress.model import waiting
from storagetest.plugin.run_state import KEY
from storagetest.protocols.base import Attachment
from storagetest.runner.locks import acquire, machine_id

__all__ = ["CaseGuard"]


class CaseGuard:
    """A plugin of its own, so that each hook can be read beside its counterpart."""

    def __init__(self, config: pytest.Config) -> None:
        self._state = config.stash[KEY]
        self._timeout: float = config.option.st_lock_timeout
        self._locks: ExitStack | None = None

    def _variant(self, item: pytest.Item) -> Variant | None:
        identifier = item_variant(item)
        return None if identifier is None else self._state.variants[identifier]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip what is known to be broken; wait until nobody else uses the client or the server."""
        variant = self._variant(item)
        if variant is None:
            return
        diagnostics.set_allure_identity(item, variant, self._state)
        why = self._state.failure_reason(variant)
        if why:
            pytest.skip(why)
        if self._locks is None:  # else it is of the round trip that holds them
            self._locks = self._lock(item, variant)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fail the case whose option was changed in silence; find out whether a broken case's target died."""
        variant = self._variant(item)
        attachment = getattr(item, "funcargs", {}).get("attachment")
        if variant is None or not isinstance(attachment, Attachment):
            yield
            return
        fail_on_option_mismatch(variant, attachment)
        try:
            yield
        except StoragetestError:
            self._state.check_alive(variant, attachment.client)
            raise

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Iterator[None]:
        """Release the locks, whatever became of the case, unless the next one is of the same round trip."""
        try:
            yield
        finally:
            self._state.teller.tell(None)
            if self._locks is not None and not under_way(nextitem):
                self._locks.close()
                self._locks = None

    def _server(self, variant: Variant) -> str:
        """Return what tells its serving machine from others: the machine that is named, or else its address.

        An address may mean another machine in another network, as it does in two labs on one machine.
        """
        if variant.server is not None:
            return machine_id(variant.server)
        return str(self._state.protocol(variant).server(variant.options))

    def _lock(self, item: pytest.Item, variant: Variant) -> ExitStack:
        partner = second_variant(item, self._state)
        servers = [self._server(one) for one in (variant, partner) if one is not None]
        machines = [*item_machines(item, variant, self._state)]
        uses = set(getattr(item, "fixturenames", ()))
        if "second_client" in uses and (second := self._state.second_client(variant)) is not None:
            machines.append(second)
        clients = [f"client:{machine_id(machine)}" for machine in machines]
        behind = [f"server:{server}" for server in servers]
        measures = bool({"measure", "find_maximum", "comparison"} & uses)
        # What several clients count is the proof of a case, so nobody else may make them count.
        alone = clients if measures or len(clients) > 1 else []
        if measures or is_exclusive(item):
            alone = alone + behind
        stack = ExitStack()
        self._state.teller.tell(waiting(variant.id, item.name))
        try:
            locks = acquire(
                exclusive=alone, shared=clients + behind, timeout=self._timeout, purpose=item.nodeid
            )
            stack.enter_context(locks)
        finally:
            self._state.teller.tell(None)
        return stack
