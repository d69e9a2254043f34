"""Where a load's data are: the page cache, the server's writes, the data set."""

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from storagetest.errors import HostError, WorkloadError
from storagetest.hosts.base import Completed
from storagetest.hosts.local import LocalHost
from storagetest.measure.cache import Cache
from storagetest.measure.run import Sample
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.runner import MeasurementPhase
from storagetest.runner.data_placement import place_data
from storagetest.runner.page_cache import drop, twice_the_memory
from storagetest.runner.server_writes import ServerWrites
from storagetest.workloads.base import LoadSize
from storagetest.workloads.postmark import Postmark
from storagetest.workloads.small_random_read import SmallRandomRead

_GIB = 1 << 30


def mounts(count: int, root: str = "/mnt/{}") -> list[Attachment]:
    def attachment(n: int) -> Attachment:
        path, kind = f"/mnt/{n}/own-{n}", AttachmentKind.FILESYSTEM
        return Attachment(LocalHost(f"c{n}"), path, kind, _GIB, root=root.format(n))

    return [attachment(n) for n in range(count)]


def devices(count: int) -> list[Attachment]:
    return [
        Attachment(LocalHost(f"c{n}"), f"/dev/sd{'abc'[n]}", AttachmentKind.BLOCK, _GIB + 5)
        for n in range(count)
    ]


def test_a_data_set_of_its_own_is_in_its_own_directory_with_a_share_of_the_space():
    found = place_data(mounts(4), "own")
    assert [place.use.path for place in found] == [f"/mnt/{n}/own-{n}" for n in range(4)]
    assert {place.use.size for place in found} == {_GIB // 4}
    assert all(place.fill == place.use for place in found)


def test_rotated_readers_read_what_their_neighbour_filled():
    found = place_data(mounts(3), "own", rotated=True)
    assert [place.use.path for place in found] == ["/mnt/0/own-1", "/mnt/1/own-2", "/mnt/2/own-0"]
    assert [place.fill.path for place in found if place.fill] == [f"/mnt/{n}/own-{n}" for n in range(3)]


def test_a_shared_data_set_is_filled_by_the_first_and_seen_by_all():
    found = place_data(mounts(3), "shared")
    assert [place.use.path for place in found] == [f"/mnt/{n}/own-0" for n in range(3)]
    assert [place.fill is not None for place in found] == [True, False, False]


@pytest.mark.parametrize("how", [{"data": "shared"}, {"data": "own", "rotated": True}])
def test_clients_without_shared_storage_are_an_error(how):
    with pytest.raises(WorkloadError, match=r"c\d does not see \S+ of c\d"):
        place_data(mounts(2, root=""), **how)


def test_on_a_device_each_has_a_region_and_none_overlap():
    found = place_data(devices(3), "own")
    regions = sorted((place.use.offset, place.use.offset + place.use.size) for place in found)
    assert regions[0][0] == 0
    assert regions[-1][1] <= _GIB
    assert all(one[1] <= other[0] for one, other in pairwise(regions))
    rotated = place_data(devices(3), "own", rotated=True)
    assert [place.use.offset for place in rotated] == [found[n].use.offset for n in (1, 2, 0)]
    shared = place_data(devices(3), "shared")
    assert {(place.use.offset, place.use.size) for place in shared} == {(0, _GIB + 5)}


def test_filled_data_set_is_not_filled_again_for_many_clients():
    (first, second) = place_data(devices(2), "own")
    assert first.key("fio:1", 1 << 20) == "fio:1"
    assert second.key("fio:1", 1 << 20) != "fio:1"
    assert first.key("fio:1", _GIB) != "fio:1"  # another client leaves it less space


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


STAT = "/sys/block/{}/stat\0  10 0 80 5 {} 0 800 9 0 12 14\n"


class Server:
    """Answers with one reading after another."""

    name = "server"

    def __init__(self, *readings):
        self._readings = list(readings)

    def run(self, argv, **_):
        reading = self._readings.pop(0)
        if reading is None:
            raise HostError("server: lost")
        text = "".join(STAT.format(device, writes) for device, writes in reading.items())
        return SimpleNamespace(stdout=text)


def test_the_device_with_the_most_writes_counts():
    watched = ServerWrites([Server({"vda": 100, "dm-0": 50}, {"vda": 140, "dm-0": 60})])
    assert watched.count() == (40, "vda on server")


@pytest.mark.parametrize("readings", [(None, {"vda": 3}), ({"vda": 3}, None), ({}, {}), ({"a": 1}, {"b": 2})])
def test_what_cannot_be_read_is_not_counted(readings):
    assert ServerWrites([Server(*readings)]).count() is None


def test_counters_that_began_anew_are_no_writes():
    assert ServerWrites([Server({"vda": 100}, {"vda": 1})]).count() == (0, "vda on server")


def test_postmark_reports_server_writes_per_transaction(measure):
    server = Server({"vda": 100}, {"vda": 175})
    options, scale = {"files": 20, "transactions": 50}, LoadSize(1 << 20, ramp=0.0, runtime=1.0)
    run, _ = measure(Postmark(), scale, options=options, repeats=1, extra_hosts=(server,))
    assert run.samples[0].values["server_writes_per_transaction"] == 75 / 50
    assert run.samples[0].evidence["server writes"] == "75 write operations, vda on server"
