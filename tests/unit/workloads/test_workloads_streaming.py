"""Streaming with the real agent on a directory: what is due when, and what happens to those who wait."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from measured_loads import assert_filled, measured

from storagetest.errors import WorkloadError
from storagetest.protocols.base import AttachmentKind
from storagetest.workloads._agent.result import AgentResult
from storagetest.workloads.base import LoadSize
from storagetest.workloads.small_random_read import SmallRandomRead
from storagetest.workloads.streaming import Streaming

MIB = 1 << 20
SCALE = LoadSize(size=4 * MIB, ramp=0, runtime=0.5)
LOAD = Streaming()


def run(attachment, options, scale=SCALE):
    sample = measured(LOAD, attachment, {"direct": False, **options}, scale)
    return sample, [json.loads(line) for line in sample.evidence["readers"].splitlines()]


def test_each_reader_takes_its_frames_at_its_rate(directory):
    sample, readers = run(directory, {"streams": 3, "frames_per_second": 40, "deadline": "5s"})
    assert [reader["frames"] for reader in readers] == [20] * 3
    assert [reader["read"] for reader in readers] == [20] * 3
    assert set(sample.values) == set(LOAD.metrics)
    assert sample.values["deadline_misses"] == sample.values["missed"] == 0
    assert sample.operations["response"].count == sample.operations["service"].count == 60
    assert sample.seconds > 0.45  # it did not hurry: the last frame is due after 19/40 s
    assert sample.values["response_mean"] >= sample.values["service_mean"] * 0.99  # never less, but for bins
    assert sample.values["longest_response"] >= sample.operations["response"].percentile(1) * 0.99
    assert sample.values["longest_gap"] >= 1 / 40 * 0.5
    if sample.values["achieved"] >= 0.99:  # else this machine is very busy, and the sample is invalid
        assert sample.invalid == ()


def test_reader_that_cannot_keep_up_makes_the_repeat_invalid(directory):
    """Frames of 4 MiB, ten thousand a second: no target does that, and no memory."""
    options = {"streams": 1, "frame_size": "4MiB", "frames_per_second": 10_000, "deadline": "50ms"}
    sample, (reader,) = run(directory, options, replace(SCALE, runtime=0.3))
    assert reader["read"] < reader["frames"] == 3000
    assert reader["missed"] >= reader["frames"] - reader["read"]
    assert sample.values["achieved"] < 0.99
    (why,) = sample.invalid
    assert why.startswith("the slowest of 1 readers reached ")
    assert "of 10000 frames/s of 4MiB" in why
    assert why.endswith("under 99% of the requested rate")
    assert sample.seconds < 3
    # What waited is charged with the waiting: response times grow, service times do not.
    assert sample.values["response_p99"] > 3 * sample.values["service_p50"]


def test_it_shares_the_data_set_of_loads_by_fio(directory):
    by_fio = SmallRandomRead()
    assert LOAD.dataset(LOAD.Options(), SCALE) == by_fio.dataset(by_fio.Options(), SCALE)
    run(directory, {})
    (file,) = Path(directory.path).iterdir()
    assert file.name == f"storagetest-{SCALE.size}.dat"
    assert_filled(file, SCALE.size)


def test_on_a_device_nothing_beyond_the_size_is_written(device):
    run(device, {"streams": 2})
    assert Path(device.path).read_bytes()[4 * MIB :] == b"x" * 4 * MIB
    assert device.kind is AttachmentKind.BLOCK


def test_a_reader_goes_round_in_its_own_part(directory):
    options = {"streams": 4, "frame_size": "512KiB", "frames_per_second": 20, "deadline": "5s"}
    sample, readers = run(directory, options)
    assert json.loads(sample.evidence["request"])["size"] == MIB
    assert all(reader["read"] == 10 for reader in readers)


@pytest.mark.parametrize(
    ("options", "scale", "message"),
    [
        ({"streams": 5, "frame_size": "1MiB"}, SCALE, "5 frames of 1MiB do not fit: use a larger size"),
        ({"frames_per_second": 2}, SCALE, "2 frames a second for 0.5 s: fewer than two frames"),
    ],
)
def test_what_cannot_be_played_is_refused(directory, options, scale, message):
    with pytest.raises(WorkloadError, match=message):
        LOAD.measure(directory, LOAD.Options.model_validate(options), scale)


@pytest.mark.parametrize(("achieved", "valid"), [(1.0, True), (0.99, True), (0.9899, False), (0.0, False)])
def test_under_99_percent_of_the_rate_is_invalid(achieved, valid):
    readers = [{"achieved": 1.0}, {"achieved": achieved}]
    assert (LOAD.invalid(AgentResult({}, extra={"readers": readers}), LOAD.Options()) == ()) is valid
