"""Dropping caches and the size of what is cold, without dropping this machine's."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from storagetest.errors import HostError, WorkloadError
from storagetest.hosts.base import Completed
from storagetest.hosts.local import LocalHost
from storagetest.measure.cache import Cache
from storagetest.measure.run import Sample
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.runner import MeasurementPhase
from storagetest.runner.page_cache import drop, twice_the_memory
from storagetest.workloads.base import LoadSize
from storagetest.workloads.small_random_read import SmallRandomRead


class ScriptedHost(LocalHost):
    """A host that returns scripted results and records its commands."""

    def __init__(self, name: str, answer: Callable[[str], tuple[int, str]]) -> None:
        super().__init__(name)
        self.answer = answer
        self.asked: list[str] = []

    def run(self, argv, **more):
        self.asked.append(" ".join(argv))
        status, text = self.answer(self.asked[-1])
        done = Completed(self.name, tuple(argv), status, text, "" if not status else "Permission denied", 0.0)
        if status and more.get("check", True):
            raise HostError(done.describe())
        return done


def memory(kib: int) -> Callable[[str], tuple[int, str]]:
    return lambda asked: (0, f"MemTotal:  {kib} kB\n" if "meminfo" in asked else "")


def test_the_larger_memory_counts_twice():
    assert twice_the_memory([ScriptedHost("a", memory(100)), ScriptedHost("b", memory(300))]) == 600 * 1024
    with pytest.raises(HostError, match="has no MemTotal"):
        twice_the_memory([ScriptedHost("a", lambda _: (0, ""))])


def test_client_without_drop_permission_is_an_error_and_server_is_reported():
    may, may_not = ScriptedHost("a", memory(1)), ScriptedHost("b", lambda _: (1, ""))
    assert drop(may, [may_not]) == "dropped on a, NOT dropped on b: Permission denied"
    assert "drop_caches" in may.asked[0]
    with pytest.raises(WorkloadError, match="b: its page cache cannot be dropped, which needs root"):
        drop(may_not, [])


def test_what_is_cold_has_no_ramp_its_own_size_and_its_caches_dropped_before_each_repeat(
    scripted, measure, monkeypatch
):
    load = scripted([])
    monkeypatch.setattr(load, "cache", lambda _: Cache.COLD)
    monkeypatch.setattr(load, "measure", Mock(return_value=Sample({"iops": 1.0}, 1.0, 1)))
    client, server, events = ScriptedHost("a", memory(64)), ScriptedHost("b", memory(128)), []
    run, _ = measure(
        load,
        LoadSize(1 << 20, ramp=5.0, runtime=1.0),
        attachment=Attachment(client, "/x", AttachmentKind.FILESYSTEM, 1 << 30),
        repeats=2,
        extra_hosts=(server,),
        on_progress=events.append,
    )
    scales = [call.args[2] for call in load.measure.call_args_list]
    assert [(scale.size, scale.ramp) for scale in scales] == [(256 * 1024, 0.0)] * 2
    repeats = [MeasurementPhase.DROP, MeasurementPhase.MEASURE]
    assert [event.phase for event in events if event.phase in repeats] == repeats * 2
    assert sum("drop_caches" in asked for asked in server.asked) == 2
    assert run.samples[0].evidence["caches"] == "dropped on a, dropped on b"


def test_the_state_follows_from_the_options_and_shows_in_the_result_where_it_was_asked_for():
    load = SmallRandomRead()
    buffered = {"direct": False, "engine": "psync", "queue_depth": 1}
    states = [
        load.cache(load.Options.model_validate(options))
        for options in ({}, buffered, {**buffered, "cache": "cold"}, {**buffered, "cache": "warm"})
    ]
    assert states == [Cache.DIRECT, None, Cache.COLD, Cache.WARM]
    assert "cache" not in load.parameters(load.Options())
    assert load.parameters(load.Options.model_validate({**buffered, "cache": "warm"}))["cache"] == "warm"
