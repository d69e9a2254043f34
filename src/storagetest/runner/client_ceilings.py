"""Ceilings: the I/O rate of a load on a client without a target, measured once for each client and load."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from storagetest.errors import WorkloadError
from storagetest.hosts.base import Host


class ClientCeilings:
    """Ceilings (I/Os per second) by client connection and load. None: the load has no ceiling."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Host, dict[str, float | None]] = WeakKeyDictionary()

    def get(self, client: Host, load: str, measure: Callable[[], float | None]) -> float | None:
        """Return the ceiling of ``load`` on ``client``; call ``measure`` the first time.

        Raises :class:`HostError` if the client cannot be reached. A load generator that fails leaves the
        ceiling unknown, because a ceiling is a detail of the report and not a check.
        """
        known = self._known.setdefault(client, {})
        if load not in known:
            try:
                known[load] = measure()
            except WorkloadError:
                known[load] = None
        return known[load]
