"""Where each of many clients has its data."""

from __future__ import annotations

from itertools import pairwise

import pytest

from storagetest.errors import WorkloadError
from storagetest.hosts.local import LocalHost
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.runner.data_placement import place_data

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
