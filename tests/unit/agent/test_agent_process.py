"""The agent as a process: its responses; it leaves no processes and no files, however it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from storagetest.polling import wait_until

FOREVER = {"seconds": 60, "deadline": 120}


def children(pid: int) -> set[int]:
    return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def worker_pids(process, metadata) -> set[int]:
    """Wait until the workers make files, and return their process ids."""
    directory = Path(metadata["path"]) / "storagetest-metadata/p0"
    wait_until(
        lambda: directory.is_dir() and any(directory.iterdir()),
        30,
        "files made by the workers",
        interval=0.01,
    )
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


def test_at_its_deadline_it_reports_an_error_and_kills_its_workers(started, metadata, tmp_path):
    process = started({**metadata, **FOREVER, "deadline": 1.5, "operations": ["stat"]})
    workers = worker_pids(process, metadata)
    response = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait(10) == 1
    assert (response["kind"], response["message"]) == (
        "deadline",
        "2 of 2 workers did not end by the deadline",
    )
    assert not any(alive(worker) for worker in workers)
    assert not list(tmp_path.iterdir())


def test_sigterm_ends_its_workers_and_removes_its_files(started, metadata, tmp_path):
    process = started({**metadata, **FOREVER, "operations": ["stat"]})
    workers = worker_pids(process, metadata)
    process.terminate()
    response = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait(10) == 1
    assert response["kind"] == "stopped"
    assert not any(alive(worker) for worker in workers)
    assert not list(tmp_path.iterdir())


def test_its_workers_end_when_it_is_killed(started, metadata):
    process = started({**metadata, **FOREVER, "operations": ["stat"]})
    workers = worker_pids(process, metadata)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    wait_until(lambda: not any(alive(worker) for worker in workers), 10, "the workers' end", interval=0.02)
    assert not any(line.startswith(b'{"t":"result"') for line in process.stdout.read().splitlines())


def test_a_killed_worker_is_an_error(started, metadata, tmp_path):
    process = started({**metadata, **FOREVER, "operations": ["stat"]})
    workers = worker_pids(process, metadata)
    os.kill(min(workers), signal.SIGKILL)
    response = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait(10) == 1
    assert response["kind"] == "died"
    assert "killed, or out of memory" in response["message"]
    assert not any(alive(worker) for worker in workers)
    assert not list(tmp_path.iterdir())


def test_a_stopped_worker_is_killed_at_the_deadline(started, metadata):
    """A stopped process represents one that hangs in a system call: it sends nothing."""
    process = started({**metadata, **FOREVER, "deadline": 2.0, "operations": ["stat"]})
    workers = worker_pids(process, metadata)
    os.kill(min(workers), signal.SIGSTOP)
    started_at = time.monotonic()
    assert process.wait(30) == 1
    assert time.monotonic() - started_at < 20
    assert not any(alive(worker) for worker in workers)
