"""The agent's fill, streaming and database loads, on the oldest Python that it supports."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storagetest.agent.commands.loads.streaming import _Reader

MIB = 1 << 20


def fill(path: Path, **more):
    request = {"command": "loads.fill", "deadline": 30, "path": str(path), "size": 2 * MIB + 5, "seed": 1}
    return {**request, **more}


@pytest.fixture
def data(ask, tmp_path: Path) -> Path:
    path = tmp_path / "data"
    assert ask(fill(path, make=True))["value"] == {"size": 2 * MIB + 5}
    return path


def play(path: Path, **more):
    request = {"command": "loads.streaming", "deadline": 30, "path": str(path), "streams": 2, "frame": 4096,
               "size": MIB, "rate": 50.0, "seconds": 0.2, "within": 5.0, "direct": False}  # fmt: skip
    return {**request, **more}


def work(path: Path, **more):
    request = {"command": "loads.database", "deadline": 30, "path": str(path), "logs": str(path.parent),
               "log": MIB, "data": 2 * MIB, "record": 4096, "page": 8192, "workers": 2, "read_percent": 50,
               "direct": False, "seconds": 0.2, "seed": 1}  # fmt: skip
    return {**request, **more}


def test_fill_without_make_does_not_create_the_file(ask, tmp_path):
    line = ask(fill(tmp_path / "x", make=False))
    assert (line["t"], line["errno"]) == ("error", "ENOENT")
    assert list(tmp_path.iterdir()) == []


def test_every_frame_is_read_at_its_due_time(ask, data):
    value = ask(play(data))["value"]
    logs = value["phases"]["play"]["operations"]
    assert [reader["read"] for reader in value["readers"]] == [10, 10]
    assert sum(logs["response"]["bins"].values()) == logs["service"]["ops"] == 20
    assert logs["service"]["bytes"] == 20 * 4096
    assert value["phases"]["play"]["span"] >= 9 / 50


def test_a_file_that_ends_too_early_is_an_error(ask, data):
    os.truncate(data, MIB)
    line = ask(play(data))
    assert line["t"] == "error"
    assert "no whole frame at" in line["message"]


def test_commits_and_pages_run_concurrently_and_the_log_is_removed(ask, data):
    logs = ask(work(data))["value"]["phases"]["work"]["operations"]
    assert all(logs[name]["ops"] for name in ("commit", "page_read", "page_write"))
    assert logs["commit"]["total_bytes"] == 4096 * logs["commit"]["total"]
    assert list(data.parent.iterdir()) == [data]
    assert data.stat().st_size == 2 * MIB + 5


def test_on_a_device_the_log_stays_before_the_pages(ask, data):
    before = data.read_bytes()
    ask(work(data, logs=None, data=MIB, read_percent=100, seed=7))
    after = data.read_bytes()
    assert after[MIB:] == before[MIB:]
    assert after[:4096] != before[:4096]


@pytest.mark.parametrize(
    ("waits", "achieved"),
    [
        ([0] * 100, 1.0),
        ([0] * 50 + [300] * 3 + [0] * 47, 1.0),  # a stall that it caught up with
        ([0] * 99 + [300], 1.0),  # a stall at the very end
        ([10 * n for n in range(100)], 0.84),  # 25 % too slow throughout, at least 760 ms late at the end
        ([0] * 50, 0.5),  # half of the frames were abandoned
        ([0], 0.0),  # one frame is no rate
    ],
    ids=["never late", "a stall", "a late stall", "too slow", "half", "one"],
)
def test_a_reader_reaches_its_rate_if_it_catches_up(waits, achieved):
    """A hundred frames, 25 per second; ``waits`` is the delay of each start in milliseconds."""
    reader = _Reader(play(Path("/none"), rate=25.0, seconds=4.0), 0)
    for wait in waits:
        reader.service.ends.append(0)
        reader.service.latencies.append(5_000_000)
        reader.response.ends.append(0)
        reader.response.latencies.append(5_000_000 + wait * 1_000_000)
    assert reader.achieved() == pytest.approx(achieved, abs=0.01)
