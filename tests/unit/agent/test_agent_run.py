"""The agent as a process: what it answers, and that it leaves no processes and no files, however it ends."""

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


def under_way(process, metadata) -> set[int]:
    """Wait until workers make files, and return who they are."""
    made = Path(metadata["path"]) / "storagetest-metadata/p0"
    wait_until(lambda: made.is_dir() and any(made.iterdir()), 30, "files made by the workers", interval=0.01)
    workers = children(process.pid)
    assert len(workers) == metadata["processes"]
    return workers


def test_a_request_is_answered_and_nothing_is_left(ask, metadata, tmp_path):
    value = ask(metadata)["value"]
    assert list(value["phases"]) == ["create", "stat", "unlink"]
    for name, phase in value["phases"].items():
        assert phase["operations"][name]["total"] == metadata["files"]
        assert sum(phase["operations"][name]["bins"].values()) == phase["operations"][name]["ops"]
        assert 0 < phase["seconds"] <= phase["span"]
    assert value["cpu"][0].startswith("cpu ")
    assert not list(tmp_path.iterdir())


def test_it_answers_the_same_on_the_python_of_the_tests(ask, metadata):
    assert ask(metadata, python=sys.executable)["value"]["files"] == metadata["files"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": "nosuch"}, "no command is called 'nosuch'"),
        ({"command": "../metadata"}, "no command is called"),
        ({"processes": None}, "TypeError"),
    ],
)
def test_a_request_that_makes_no_sense_is_an_error(ask, metadata, change, message):
    answer = ask({**metadata, **change})
    assert answer["t"] == "error"
    assert message in answer["message"]


def test_a_system_call_that_fails_is_named(ask, metadata):
    answer = ask({**metadata, "path": metadata["path"] + "/nosuch"})
    assert (answer["kind"], answer["errno"], answer["op"]) == ("os", "ENOENT", "begin")
    assert answer["path"].endswith("/nosuch/storagetest-metadata")


def test_what_an_agent_left_that_was_killed_is_removed_by_the_next(ask, metadata, tmp_path):
    left = tmp_path / "storagetest-metadata" / "p0"
    left.mkdir(parents=True)
    (left / "f0.1").write_text("left")
    assert ask(metadata)["t"] == "result"
    assert not list(tmp_path.iterdir())


def test_past_its_deadline_it_says_so_and_its_workers_are_gone(started, metadata, tmp_path):
    process = started({**metadata, **FOREVER, "deadline": 1.5, "operations": ["stat"]})
    workers = under_way(process, metadata)
    said = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait(10) == 1
    assert (said["kind"], said["message"]) == ("deadline", "2 of 2 workers were not done in time")
    assert not any(alive(worker) for worker in workers)
    assert not list(tmp_path.iterdir())


def test_told_to_end_it_ends_its_workers_and_tidies(started, metadata, tmp_path):
    process = started({**metadata, **FOREVER, "operations": ["stat"]})
    workers = under_way(process, metadata)
    process.terminate()
    said = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait(10) == 1
    assert said["kind"] == "stopped"
    assert not any(alive(worker) for worker in workers)
    assert not list(tmp_path.iterdir())


def test_killed_it_takes_its_workers_along(started, metadata):
    process = started({**metadata, **FOREVER, "operations": ["stat"]})
    workers = under_way(process, metadata)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    wait_until(
        lambda: not any(alive(worker) for worker in workers), 10, "the end of the workers", interval=0.02
    )
    assert not any(line.startswith(b'{"t":"result"') for line in process.stdout.read().splitlines())


def test_a_worker_that_is_killed_is_an_error_and_no_number(started, metadata, tmp_path):
    process = started({**metadata, **FOREVER, "operations": ["stat"]})
    workers = under_way(process, metadata)
    os.kill(min(workers), signal.SIGKILL)
    said = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait(10) == 1
    assert said["kind"] == "died"
    assert "killed, or out of memory" in said["message"]
    assert not any(alive(worker) for worker in workers)
    assert not list(tmp_path.iterdir())


def test_a_worker_that_is_stopped_holds_it_up_until_the_deadline_only(started, metadata):
    """A stopped process stands for one that hangs in a call: it answers nothing."""
    process = started({**metadata, **FOREVER, "deadline": 2.0, "operations": ["stat"]})
    workers = under_way(process, metadata)
    os.kill(min(workers), signal.SIGSTOP)
    began = time.monotonic()
    assert process.wait(30) == 1
    assert time.monotonic() - began < 20
    assert not any(alive(worker) for worker in workers)
