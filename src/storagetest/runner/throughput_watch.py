"""What moves right now between the client and its target, while a load runs.

The sampler that runs beside every load is asked to say, now and then, what the few counters hold that tell
how many bytes crossed (:mod:`storagetest.counters._transferred_bytes`). Two such moments make a rate: it is
the client kernel's own count, all of the client's traffic by that counter, and never the load generator's
guess. Where no counter tells (a tmpfs, say) there is no rate.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from storagetest.counters import _transferred_bytes
from storagetest.counters._transferred_bytes import transferred_between
from storagetest.counters.base import Snapshot

__all__ = ["Throughput", "ThroughputWatch"]


@dataclass(frozen=True, slots=True)
class Throughput:
    """Bytes a second that were read from and written to the target over the last ``seconds``.

    ``counter`` says whose count it is.
    """

    read: float
    written: float
    seconds: float
    counter: str


class ThroughputWatch:
    """Follows what a sampler tells, and calls ``on_flow`` with each rate, in the sampler's thread.

    ``path`` is the file or device under load, ``every`` the seconds between two tellings.
    """

    def __init__(self, path: str, every: float, on_flow: Callable[[Throughput], None]) -> None:
        self._path, self._every, self._on_flow = path, every, on_flow
        self._before: Snapshot | None = None

    @property
    def request(self) -> dict[str, Any]:
        """What the agent's ``sample`` is asked for."""
        return {
            "every": self._every,
            "paths": list(_transferred_bytes.paths()),
            "lines": dict(_transferred_bytes.lines()),
        }

    def hear(self, said: Mapping[str, Any]) -> None:
        """Take in a line of the sampler's; what cannot be read is passed over, as it is for the eye only."""
        try:
            texts = json.loads(zlib.decompress(base64.b64decode(said["now"])))
            now = Snapshot(float(said["at"]), {str(path): str(text) for path, text in texts.items()})
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error):
            return
        before, self._before = self._before, now
        if before is None or now.time <= before.time:
            return
        crossed = transferred_between(before.texts, now.texts, self._path)
        if crossed is not None:
            seconds = now.time - before.time
            self._on_flow(
                Throughput(crossed.read / seconds, crossed.written / seconds, seconds, crossed.counter)
            )
