"""What a client does of a load on a target that takes no time: measured once a client and a load."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from storagetest.errors import WorkloadError
from storagetest.hosts.base import Host

__all__ = ["ClientCeilings"]


class ClientCeilings:
    """Remembers ceilings (I/Os per second) by connection and load. None: the load cannot tell."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Host, dict[str, float | None]] = WeakKeyDictionary()

    def get(self, client: Host, load: str, measure: Callable[[], float | None]) -> float | None:
        """Return the ceiling of ``load`` on ``client``; it is measured the first time.

        Raises :class:`HostError` where the client cannot be reached. A generator that cannot do it leaves the
        ceiling unknown: it is evidence, not a check.
        """
        known = self._known.setdefault(client, {})
        if load not in known:
            try:
                known[load] = measure()
            except WorkloadError:
                known[load] = None
        return known[load]
