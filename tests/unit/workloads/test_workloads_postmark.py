"""PostMark with the real agent on a directory."""

from dataclasses import replace

import pytest
from measured_loads import measured_operations

from storagetest.errors import WorkloadError
from storagetest.workloads.base import LoadSize
from storagetest.workloads.postmark import Postmark

MIB = 1 << 20
SCALE = LoadSize(size=4 * MIB, ramp=0, runtime=0.2)
LOAD = Postmark()
PUBLISHED = {"files": 500, "transactions": 500}


def run(directory, options, scale=SCALE):
    return measured_operations(LOAD, directory, options, scale)


def test_the_published_run_is_what_is_published(directory):
    """500 files, 500 transactions of two halves each, and everything that was created is deleted."""
    sample, operations = run(directory, PUBLISHED)
    work = {name: entry["total"] for name, entry in operations["transactions"].items()}
    assert operations["create"]["create"]["total"] == 500
    assert work["transaction"] == 500
    assert work["create"] + work["delete"] == 500
    assert operations["delete"]["delete"]["total"] == 500 + work["create"] - work["delete"]
    # An append to a file that has its largest size is none; all else is chosen with equal chances.
    assert 400 <= work["read"] + work["append"] <= 500
    assert all(150 < work[name] < 350 for name in ("read", "append", "create", "delete"))
    assert set(sample.values) == set(LOAD.metrics) - {"server_writes_per_transaction"}  # no server is given
    assert sample.values["transactions"] == 500
    mean = operations["create"]["create"]["total_bytes"] / 500
    assert 4500 < mean < 6000


def test_the_same_seed_asks_for_the_same_and_another_repeat_for_something_else(directory):
    def asked(repeat):
        _, operations = run(directory, PUBLISHED, replace(SCALE, repeat=repeat))
        return [entry["total_bytes"] for phase in operations.values() for entry in phase.values()]

    assert asked(0) == asked(0) != asked(1)


@pytest.mark.parametrize(
    ("options", "nothing"),
    [
        ({**PUBLISHED, "read_bias": 10}, {"append"}),
        ({**PUBLISHED, "read_bias": 0}, {"read"}),
        ({**PUBLISHED, "read_bias": -1}, {"read", "append"}),
        ({**PUBLISHED, "create_bias": -1}, {"create", "delete"}),
    ],
    ids=["read-only", "append-only", "no-data", "data-only"],
)
def test_a_bias_decides_what_is_done(directory, options, nothing):
    sample, operations = run(directory, options)
    assert {name for name, entry in operations["transactions"].items() if not entry["total"]} == nothing
    assert not {f"{name}_p99" for name in nothing} & set(sample.values)


def test_with_creations_only_the_pool_does_not_grow_past_twice_its_size(directory):
    _, operations = run(directory, {"files": 20, "transactions": 200, "create_bias": 10})
    assert operations["transactions"]["create"]["total"] - operations["transactions"]["delete"]["total"] <= 20


def test_with_deletions_only_an_empty_pool_is_filled_again(directory):
    _, operations = run(directory, {"files": 20, "transactions": 200, "create_bias": 0})
    assert operations["transactions"]["create"]["total"] > 0


def test_files_may_be_spread_and_processes_many_and_writes_synced(directory):
    options = {"subdirectories": 5, "processes": 3, "sync": True, "buffered": False}
    sample, operations = run(directory, options)
    assert operations["create"]["create"]["total"] == 4 * MIB // 262144
    assert sample.values["tps"] > 0


def test_files_are_of_one_size_where_low_is_high(directory):
    _, operations = run(directory, {**PUBLISHED, "low": "4KiB", "high": "4KiB"})
    assert operations["create"]["create"]["total_bytes"] == 500 * 4096
    assert operations["transactions"]["append"]["total"] == 0


def test_pool_that_does_not_fit_is_refused(directory):
    options = LOAD.Options.model_validate(PUBLISHED)
    with pytest.raises(WorkloadError, match=r"the load requires 10MB, and .* has space for 921KiB"):
        LOAD.request(replace(directory, size=MIB), options, SCALE)
