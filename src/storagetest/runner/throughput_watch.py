"""Live throughput between a client and its target while a load runs.

The counter sampler sends at an interval the few counters of transferred bytes
(:mod:`storagetest.counters._transferred_bytes`). Two samples give a rate: the client kernel's own count of
all the client's traffic by that counter. Without such a counter (tmpfs) there is no rate.
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


@dataclass(frozen=True, slots=True)
class Throughput:
    """Bytes per second read from and written to the target over the last ``seconds``.

    ``counter`` names the counter that was read.
    """

    read: float
    written: float
    seconds: float
    counter: str


class ThroughputWatch:
    """Compute rates from the sampler's messages; call ``on_throughput`` with each, in the sampler's thread.

    ``path`` is the file or device under load, ``interval`` the seconds between two messages.
    """

    def __init__(self, path: str, interval: float, on_throughput: Callable[[Throughput], None]) -> None:
        self._path, self._interval, self._on_throughput = path, interval, on_throughput
        self._before: Snapshot | None = None

    @property
    def request(self) -> dict[str, Any]:
        """The part ``live`` of the request to the agent's ``sample_counters``."""
        return {
            "every": self._interval,
            "paths": list(_transferred_bytes.paths()),
            "lines": dict(_transferred_bytes.line_prefixes()),
        }

    def receive(self, message: Mapping[str, Any]) -> None:
        """Take one message of the sampler; one that cannot be read is ignored."""
        try:
            texts = json.loads(zlib.decompress(base64.b64decode(message["now"])))
            now = Snapshot(float(message["at"]), {str(path): str(text) for path, text in texts.items()})
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error):
            return
        before, self._before = self._before, now
        if before is None or now.time <= before.time:
            return
        transferred = transferred_between(before.texts, now.texts, self._path)
        if transferred is not None:
            seconds = now.time - before.time
            self._on_throughput(
                Throughput(
                    transferred.read / seconds, transferred.written / seconds, seconds, transferred.counter
                )
            )
