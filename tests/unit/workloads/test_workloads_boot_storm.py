"""The boot storm with the real agent, on a directory and on a file that stands in for a device."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import ValidationError

from storagetest.agent.commands.loads import boot_storm as agent
from storagetest.errors import WorkloadError
from storagetest.workloads.base import LoadSize, workloads
from storagetest.workloads.boot_storm import BootStorm

MIB = 1 << 20
SCALE = LoadSize(size=4 * MIB, ramp=0, runtime=1)
LOAD = BootStorm()
SMALL = {"vms": 4, "reads": 20, "writes": 32, "think": "0s", "direct": False}


def phase(sample):
    return json.loads(sample.evidence["phases"])


def run(attachment, options, scale=SCALE):
    read = LOAD.Options.model_validate(options)
    LOAD.fill(attachment, read, scale)
    return LOAD.measure(attachment, read, scale)


def test_every_machine_does_its_list_and_the_storm_ends_with_the_last(directory):
    sample = run(directory, SMALL)
    operations = phase(sample)["operations"]
    assert (
        operations["read"]["ops"] == operations["read"]["total"] == 4 * (20 + 3)
    )  # each tenth write is read back
    assert operations["write"]["ops"] == 4 * 32
    assert operations["flush"]["ops"] == 4 * 2
    assert set(sample.values) == set(LOAD.metrics)
    values = sample.values
    assert 0 < values["time_to_first_boot"] <= values["time_to_half"] <= values["time_to_last_boot"]
    # From the common start to the last end; the span begins when the first machine had really begun.
    assert values["time_to_last_boot"] <= phase(sample)["span"]
    assert len(sample.evidence["boots"].split(", ")) == 4
    assert [path.name for path in Path(directory.path).iterdir()] == [f"storagetest-image-{4 * MIB}"]


def test_latencies_over_time_hold_every_request(directory):
    sample = run(directory, {**SMALL, "interval": "10ms"})
    operations = phase(sample)["operations"]
    for kind, rows in json.loads(sample.evidence["series"]).items():
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        assert sum(row[1] for row in rows) == operations[kind]["total"]
        assert all(row[3] * row[1] >= row[2] for row in rows)


def test_the_image_is_filled_with_data(directory):
    LOAD.fill(directory, LOAD.Options.model_validate(SMALL), SCALE)
    data = (Path(directory.path) / f"storagetest-image-{4 * MIB}").read_bytes()
    blocks = {data[start : start + 4096] for start in range(0, len(data), 4096)}
    assert len(data) == 4 * MIB
    assert len(blocks) == 1024


def test_without_an_image_there_is_no_boot(directory):
    with pytest.raises(
        WorkloadError, match=r"here: boot-storm on .*: open_disks .*storagetest-image.*ENOENT"
    ):
        LOAD.measure(directory, LOAD.Options.model_validate(SMALL), SCALE)


def test_on_a_device_machines_keep_to_their_regions_and_never_touch_the_image(device):
    """8 MiB: the image has 4, four clones one each."""
    path = Path(device.path)
    options = LOAD.Options.model_validate(SMALL)
    LOAD.fill(device, options, SCALE)
    filled = path.read_bytes()
    assert b"x" * 4096 not in filled
    LOAD.measure(device, options, SCALE)
    after = path.read_bytes()
    assert len(after) == 8 * MIB
    assert after[: 4 * MIB] == filled[: 4 * MIB]
    for machine in range(4):
        clone = slice((4 + machine) * MIB, (5 + machine) * MIB)
        assert after[clone] != filled[clone]


def test_each_repeat_writes_other_data(device):
    options = LOAD.Options.model_validate(SMALL)
    LOAD.fill(device, options, SCALE)
    seen = []
    for repeat in (0, 0, 1):
        LOAD.measure(device, options, replace(SCALE, repeat=repeat))
        seen.append(Path(device.path).read_bytes())
    assert seen[0] == seen[1] != seen[2]


def test_the_list_is_mostly_small_random_reads_and_stays_where_it_may():
    request = {"seed": 1, "image": 64 * MIB, "clone": 2 * MIB, "reads": 4000, "writes": 1000}
    found = agent._boot_list(request)
    reads = [(place, size) for kind, place, size in found if kind == "r"]
    writes = [(place, size) for kind, place, size in found if kind in "wo"]
    assert len(reads) == 4000
    assert sum(kind == "w" for kind, _, _ in found) == 1000
    assert sum(size <= 16384 for _, size in reads) > 0.6 * 4000
    assert all(place % 4096 == 0 and place + size <= 64 * MIB for place, size in reads)
    assert all(place % 4096 == 0 and place + size <= 2 * MIB for place, size in writes)
    follow = sum(place == last + size for (last, size), (place, _) in pairwise(reads))
    assert 0.15 * 4000 < follow < 0.25 * 4000


def test_image_fills_the_free_space_unless_its_size_is_set(directory):
    small = replace(directory, size=32 * MIB)
    asked = LOAD.request(small, LOAD.Options(), replace(SCALE, size=1 << 30))
    assert asked["image"] == 8 * MIB  # nine tenths of 32 MiB, less 20 clones, in whole MiB
    with pytest.raises(WorkloadError, match="an image of 64MiB and 20 clones do not fit into 32MiB"):
        LOAD.request(small, LOAD.Options.model_validate({"image_size": "64MiB"}), SCALE)
    with pytest.raises(WorkloadError, match="at least 21MiB is needed"):
        LOAD.request(replace(directory, size=16 * MIB), LOAD.Options(), SCALE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vms": 0}, "greater than or equal to 1"),
        ({"think": "11s"}, "less than or equal to 10"),
        ({"clone_size": 1_500_000}, "is not a multiple of 1MiB"),
        ({"interval": 0}, "greater than or equal to 0.01"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        LOAD.Options.model_validate(options)


def test_the_registry_finds_it_and_its_example_loads():
    workload = workloads.get("boot-storm")
    assert workload.Options.model_validate(workload.example)
    assert not workload.needs
    assert workload().parameters(workload.Options())["clone_size"] == "1MiB"
