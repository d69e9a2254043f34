"""The boot storm with the real agent, on a directory and on a file that stands in for a device."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from measured_loads import assert_filled, measured, phases

from storagetest.agent.commands.loads import boot_storm as agent
from storagetest.errors import WorkloadError
from storagetest.workloads.base import LoadSize
from storagetest.workloads.boot_storm import BootStorm

MIB = 1 << 20
SCALE = LoadSize(size=4 * MIB, ramp=0, runtime=1)
LOAD = BootStorm()
SMALL = {"vms": 4, "reads": 20, "writes": 32, "think": "0s", "direct": False}
OPTIONS = LOAD.Options.model_validate(SMALL)


def test_every_machine_does_its_list_and_the_storm_ends_with_the_last(directory):
    sample = measured(LOAD, directory, SMALL, SCALE)
    (phase,) = phases(sample).values()
    operations = phase["operations"]
    reads = 4 * (20 + 3)  # each tenth write is read back
    assert operations["read"]["ops"] == operations["read"]["total"] == reads
    assert operations["write"]["ops"] == 4 * 32
    assert operations["flush"]["ops"] == 4 * 2
    assert set(sample.values) == set(LOAD.metrics)
    values = sample.values
    assert 0 < values["time_to_first_boot"] <= values["time_to_half"] <= values["time_to_last_boot"]
    # From the common start to the last end; the span begins when the first machine had really begun.
    assert values["time_to_last_boot"] <= phase["span"]
    assert len(sample.evidence["boots"].split(", ")) == 4
    assert [path.name for path in Path(directory.path).iterdir()] == [f"storagetest-image-{4 * MIB}"]


def test_latencies_over_time_hold_every_request(directory):
    sample = measured(LOAD, directory, {**SMALL, "interval": "10ms"}, SCALE)
    (phase,) = phases(sample).values()
    operations = phase["operations"]
    for kind, rows in json.loads(sample.evidence["series"]).items():
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        assert sum(row[1] for row in rows) == operations[kind]["total"]
        assert all(row[3] * row[1] >= row[2] for row in rows)


def test_the_image_is_filled_with_data(directory):
    LOAD.fill(directory, OPTIONS, SCALE)
    assert_filled(Path(directory.path) / f"storagetest-image-{4 * MIB}", 4 * MIB)


def test_without_an_image_there_is_no_boot(directory):
    message = r"here: boot-storm on .*: open_disks .*storagetest-image.*ENOENT"
    with pytest.raises(WorkloadError, match=message):
        LOAD.measure(directory, OPTIONS, SCALE)


def test_on_a_device_machines_keep_to_their_regions_and_never_touch_the_image(device):
    """8 MiB: the image has 4, four clones one each."""
    assert not LOAD.needs
    path = Path(device.path)
    LOAD.fill(device, OPTIONS, SCALE)
    filled = path.read_bytes()
    assert b"x" * 4096 not in filled
    LOAD.measure(device, OPTIONS, SCALE)
    after = path.read_bytes()
    assert len(after) == 8 * MIB
    assert after[: 4 * MIB] == filled[: 4 * MIB]
    for machine in range(4):
        clone = slice((4 + machine) * MIB, (5 + machine) * MIB)
        assert after[clone] != filled[clone]


def test_each_repeat_writes_other_data(device):
    LOAD.fill(device, OPTIONS, SCALE)
    seen = []
    for repeat in (0, 0, 1):
        LOAD.measure(device, OPTIONS, replace(SCALE, repeat=repeat))
        seen.append(Path(device.path).read_bytes())
    assert seen[0] == seen[1] != seen[2]


def test_the_list_is_mostly_small_random_reads_and_stays_where_it_may():
    found = agent._boot_list({"seed": 1, "image": 64 * MIB, "clone": 2 * MIB, "reads": 4000, "writes": 1000})
    reads = [(place, size) for kind, place, size in found if kind == "r"]
    writes = [(place, size) for kind, place, size in found if kind in "wo"]
    assert len(reads) == 4000
    assert sum(kind == "w" for kind, _, _ in found) == 1000
    assert sum(size <= 16384 for _, size in reads) > 0.6 * 4000
    assert all(place % 4096 == 0 and place + size <= 64 * MIB for place, size in reads)
    assert all(place % 4096 == 0 and place + size <= 2 * MIB for place, size in writes)
    follow = sum(place == last + size for (last, size), (place, _) in pairwise(reads))
    assert 0.15 * 4000 < follow < 0.25 * 4000


def test_image_and_clones_that_do_not_fit_are_refused(directory):
    place = replace(directory, size=32 * MIB)
    scale = replace(SCALE, size=8 * MIB)
    assert LOAD.request(place, LOAD.Options(), scale)["image"] == 8 * MIB  # and 20 clones of 1 MiB
    for options, size in (({}, 9 * MIB), ({"image_size": "9MiB"}, MIB)):
        with pytest.raises(WorkloadError, match=r"the load requires 29MiB, and .* has space for 29491KiB"):
            LOAD.request(place, LOAD.Options.model_validate(options), replace(SCALE, size=size))
