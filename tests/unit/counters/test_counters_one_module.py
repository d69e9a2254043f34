"""Adding a source of counters is one module: all that reads counters finds it by the registry alone."""

from collections.abc import Mapping
from pathlib import Path
from runpy import run_path
from typing import ClassVar

import pytest

from storagetest.counters import _transferred_bytes, base, request_counts, snapshot
from storagetest.counters._transferred_bytes import TransferredBytes, transferred_between
from storagetest.counters.base import MOUNTS, CounterSource, Reading, RequestKind, register, sources
from storagetest.counters.request_counts import count_requests
from storagetest.measure.unit import Unit
from storagetest.runner.throughput_watch import ThroughputWatch

REFERENCE = Path(__file__).parents[3] / "script" / "reference.py"
STATS = "/proc/fs/toyfs/stats"


class Toy(CounterSource):
    """Bytes and locks of a toy."""

    name = "toy"
    paths = (STATS,)
    counts_for = frozenset({"toyfs"})
    counter = "the toy's"
    transfers = ("read", "written")
    requests: ClassVar[Mapping[RequestKind, frozenset[str]]] = {RequestKind.LOCK: frozenset({"locks"})}
    example: ClassVar[Mapping[str, str]] = {STATS: "1 2 3\n"}

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        found = zip(
            ("read", "written", "locks"), base.leading_integers(texts.get(STATS, "").split()), strict=False
        )
        return {name: Reading(value, Unit.COUNT) for name, value in found}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    sources.all()
    monkeypatch.setattr(sources, "_entries", dict(sources._entries))
    register(Toy)


def texts(read: int, written: int, locks: int) -> dict[str, str]:
    mounts = "device x mounted on /mnt/toy with fstype toyfs\n"
    return {MOUNTS: mounts, STATS: f"{read} {written} {locks}\n"}


def test_it_is_sampled_and_read_around_each_load():
    assert "toy" in {source.name for source in base.all_sources()}
    assert STATS in snapshot.globs()
    assert STATS in snapshot.command()


def test_its_bytes_and_requests_are_those_of_its_file_system():
    assert STATS in _transferred_bytes.paths()
    crossed = transferred_between(texts(1, 2, 3), texts(11, 2, 9), "/mnt/toy/data")
    assert crossed == TransferredBytes(10, 0, "the toy's")
    assert STATS in request_counts.paths()
    before, after = (count_requests(texts(0, 0, locks), "/mnt/toy") for locks in (3, 9))
    assert after.since(before).counts == {RequestKind.LOCK: 6}
    assert after.counter == "the toy's"


def test_the_display_of_a_run_asks_for_it():
    assert STATS in ThroughputWatch("/mnt/toy", 2.0, print).request["paths"]


def test_the_reference_describes_it():
    page = run_path(str(REFERENCE))["counters_page"]()
    assert "| `toy` | Bytes and locks of a toy. | `/proc/fs/toyfs/stats` | `toyfs` | lock |" in page
