"""The agent as a process: its responses; it leaves no processes and no files, however it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from processes import children, running, wait_until_gone

from storagetest.polling import wait_until

FOREVER = {"seconds": 60, "deadline": 120, "operations": ["stat"]}


def worker_pids(process, metadata) -> set[int]:
    """Wait until the workers make files, and return their process ids."""
    directory = Path(metadata["path"]) / "storagetest-metadata/p0"
    wait_until(lambda: any(directory.glob("*")), 30, "files made by the workers", interval=0.01)
    workers = children(process.pid)
    assert len(workers) == metadata["processes"]
    return workers


def test_a_request_has_a_result_and_no_file_is_left(ask, metadata, tmp_path):
    value = ask(metadata)["value"]
    assert list(value["phases"]) == ["create", "stat", "unlink"]
    for name, phase in value["phases"].items():
        assert phase["operations"][name]["total"] == metadata["files"]
        assert sum(phase["operations"][name]["bins"].values()) == phase["operations"][name]["ops"]
        assert 0 < phase["seconds"] <= phase["span"]
    assert value["cpu"][0].startswith("cpu ")
    assert not list(tmp_path.iterdir())


def test_the_python_of_the_tests_gives_the_same_result(ask, metadata):
    assert ask(metadata, python=sys.executable)["value"]["files"] == metadata["files"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": "nosuch"}, "unknown command 'nosuch'"),
        ({"command": "../metadata"}, "unknown command"),
        ({"processes": None}, "TypeError"),
    ],
)
def test_an_invalid_request_is_an_error(ask, metadata, change, message):
    response = ask({**metadata, **change})
    assert response["t"] == "error"
    assert message in response["message"]


def test_a_failed_system_call_is_reported(ask, metadata):
    response = ask({**metadata, "path": metadata["path"] + "/nosuch"})
    assert (response["kind"], response["errno"], response["op"]) == ("os", "ENOENT", "setup")
    assert response["path"].endswith("/nosuch/storagetest-metadata")


def test_files_of_a_killed_agent_are_removed_by_the_next(ask, metadata, tmp_path):
    left = tmp_path / "storagetest-metadata" / "p0"
    left.mkdir(parents=True)
    (left / "f0.1").write_text("left")
    assert ask(metadata)["t"] == "result"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "act", "kind", "message"),
    [
        ({"deadline": 1.5}, lambda *_: None, "deadline", "2 of 2 workers did not end by the deadline"),
        ({}, lambda agent, _: agent.terminate(), "stopped", ""),
        ({}, lambda _, workers: os.kill(min(workers), signal.SIGKILL), "died", "killed, or out of memory"),
    ],
    ids=["deadline", "SIGTERM", "killed worker"],
)
def test_an_agent_that_ends_early_reports_an_error_and_leaves_nothing(
    started, metadata, tmp_path, change, act, kind, message
):
    process = started({**metadata, **FOREVER, **change})
    workers = worker_pids(process, metadata)
    act(process, workers)
    response = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait(10) == 1
    assert response["kind"] == kind
    assert message in response["message"]
    assert not running(workers)
    assert not list(tmp_path.iterdir())


def test_its_workers_end_when_it_is_killed(started, metadata):
    process = started({**metadata, **FOREVER})
    workers = worker_pids(process, metadata)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    wait_until_gone(*workers)
    assert not any(line.startswith(b'{"t":"result"') for line in process.stdout.read().splitlines())


def test_a_stopped_worker_is_killed_at_the_deadline(started, metadata):
    """A stopped process represents one that hangs in a system call: it sends nothing."""
    process = started({**metadata, **FOREVER, "deadline": 2.0})
    workers = worker_pids(process, metadata)
    os.kill(min(workers), signal.SIGSTOP)
    started_at = time.monotonic()
    assert process.wait(30) == 1
    assert time.monotonic() - started_at < 20
    assert not running(workers)
