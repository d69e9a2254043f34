"""The database load with the real agent on a directory, and on a file that stands in for a device."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from measured_loads import measured, phases

from storagetest.errors import WorkloadError
from storagetest.workloads._agent.result import AgentResult
from storagetest.workloads.base import LoadSize
from storagetest.workloads.database import Database

MIB = 1 << 20
SCALE = LoadSize(size=4 * MIB, ramp=0, runtime=0.4)
LOAD = Database()


def run(attachment, options, scale=SCALE):
    return measured(LOAD, attachment, {"direct": False, **options}, scale)


def test_commits_and_pages_at_once(directory):
    sample = run(directory, {"page_workers": 2})
    assert set(sample.values) == set(LOAD.metrics)
    values, found = sample.values, phases(sample)["work"]["operations"]
    assert values["tps"] == pytest.approx(found["commit"]["ops"] / sample.seconds)
    pages = found["page_read"]["ops"] + found["page_write"]["ops"]
    assert values["page_iops"] == pytest.approx(pages / sample.seconds)
    assert values["log_bandwidth"] == pytest.approx(values["tps"] * 4096)
    assert values["page_bandwidth"] == pytest.approx(values["page_iops"] * 8192)
    assert sample.ios == found["commit"]["ops"] + pages
    share = found["page_read"]["total"] / (found["page_read"]["total"] + found["page_write"]["total"])
    if pages > 200:
        assert 0.5 < share < 0.9


def test_the_log_is_gone_afterwards_and_the_pages_stay(directory):
    run(directory, {})
    assert [path.name for path in Path(directory.path).iterdir()] == [f"storagetest-{SCALE.size}.dat"]


@pytest.mark.parametrize(
    ("read_percent", "there", "gone"), [(100, "page_read", "page_write"), (0, "page_write", "page_read")]
)
def test_pages_may_be_only_read_or_only_written(directory, read_percent, there, gone):
    sample = run(directory, {"read_percent": read_percent, "page_size": "16KiB"})
    assert f"{there}_p99" in sample.values
    assert f"{gone}_p99" not in sample.values


def test_pages_are_written_with_what_differs_in_every_repeat(directory):
    options = {"read_percent": 0, "page_workers": 1}
    run(directory, options)
    first = next(Path(directory.path).iterdir()).read_bytes()
    run(directory, options, replace(SCALE, repeat=1))
    assert next(Path(directory.path).iterdir()).read_bytes() != first


def test_on_a_device_log_and_pages_have_regions_within_the_size(device):
    request = json.loads(run(device, {"read_percent": 0}).evidence["request"])
    assert (request["log"], request["data"], request["logs"]) == (MIB, 3 * MIB, None)
    data = Path(device.path).read_bytes()
    assert len(data) == 8 * MIB
    assert data[4 * MIB :] == b"x" * 4 * MIB


def test_the_log_is_a_part_of_the_size_and_not_more_than_databases_have(directory):
    def log(size: int) -> int:
        big = replace(directory, size=1 << 50)
        return int(LOAD.request(big, LOAD.Options(), replace(SCALE, size=size))["log"])

    assert (log(MIB), log(64 * MIB), log(1 << 40)) == (MIB, 4 * MIB, 64 * MIB)


def test_device_without_space_for_pages_is_refused(device):
    with pytest.raises(WorkloadError, match="database: 1MiB holds no pages"):
        LOAD.measure(device, LOAD.Options(), replace(SCALE, size=MIB))


def test_an_answer_without_its_lanes_is_an_error_and_not_a_figure(directory, monkeypatch):
    LOAD.fill(directory, LOAD.Options(), SCALE)
    monkeypatch.setattr("storagetest.workloads._agent.base.run_agent", lambda *_, **__: AgentResult({}))
    with pytest.raises(WorkloadError, match=r"^here: database on .*cannot be trusted: it has no 'work'"):
        LOAD.measure(directory, LOAD.Options(), SCALE)
