"""The agent's command ``cases``: what becomes of a body that ends in any way a body can."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from storagetest.agent import bundle
from storagetest.polling import wait_until

SUITE = """
import errno, os, signal, sys, time
import pytest
from storagetest.agent.testlib import run_as_user, call_in_subprocess, skip, record_observation, assert_errno, SubprocessCall, KilledBySignal

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(level="MUST")]

@pytest.mark.case("A-1", section="here")
def passes(client_dir):
    assert os.listdir(client_dir) == []
    record_observation("one of two")
    record_observation("one of two")

@pytest.mark.parametrize("word", [pytest.param("x", id="x")])
def takes(client_dir, word):
    assert word == "x"

def fails(client_dir):
    limit = 5
    assert 4 < limit < limit - 1, "too small"

def fails_without_words(client_dir):
    assert os.path.exists(client_dir / "absent")

def fails_in_a_helper(client_dir):
    helper()

def helper():
    assert "a" in "b"

def is_not_refused(client_dir):
    assert_errno(errno.EEXIST, os.mkdir, client_dir / "d")

def is_refused_otherwise(client_dir):
    assert_errno((errno.EEXIST, errno.ENOTEMPTY), os.rmdir, client_dir / "absent")

def is_refused_by_one_of_two(client_dir):
    assert_errno((errno.EEXIST, errno.ENOENT), os.rmdir, client_dir / "absent")

def an_error_that_is_no_claim(client_dir):
    os.unlink(client_dir / "absent")

def cannot(client_dir):
    skip("no such thing here")

def exits(client_dir):
    os._exit(0)

def leaves(client_dir):
    sys.exit(3)

def crashes(client_dir):
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs(client_dir):
    time.sleep(60)

def hangs_with_a_child(client_dir):
    SubprocessCall(time.sleep, [60])
    time.sleep(60)

def leaves_hanging(client_dir):
    time.sleep(60)

def leaves_a_child(client_dir):
    SubprocessCall(time.sleep, [60])

def prints(client_dir):
    print("a word")
    os.write(1, b'{"t":"result","value":{}}\\n{"case":"prints","ended":"failed"}\\n')
    os.write(2, b"\\xff\\xfe")

def scribbles(client_dir):
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, b"garbage\\n")
        except OSError:
            pass

def is_wrong(client_dir):
    None.nothing

def is_given_a_deep_tree(client_dir):
    os.chdir(client_dir)
    for _ in range(40):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)

def says_its_process(client_dir):
    record_observation(str(os.getpid()))

def says_its_process_too(client_dir):
    record_observation(str(os.getpid()))

def says_its_process_at_last(client_dir):
    record_observation(str(os.getpid()))

def leaves_a_descriptor(client_dir):
    os.open("/", os.O_RDONLY)

def leaves_a_mask(client_dir):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})

def leaves_a_handler(client_dir):
    signal.signal(signal.SIGUSR1, lambda *_: None)

def leaves_a_timer(client_dir):
    signal.alarm(50)

def leaves_another_user(client_dir):
    os.setresgid(1, 1, 0)

def leaves_a_limit(client_dir):
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def leaves_a_thread(client_dir):
    import threading
    threading.Thread(target=time.sleep, args=(50,), daemon=True).start()

def meets(client_dir):
    meet(client_dir)

def meets_too(client_dir):
    meet(client_dir)

def meet(client_dir):
    mine = client_dir.parent / f"met-{os.getpid()}"
    mine.mkdir()
    until = time.monotonic() + 5
    while len(list(client_dir.parent.glob("met-*"))) < 2:
        if time.monotonic() > until:
            mine.rmdir()
            skip("nobody came")
        time.sleep(0.01)
    time.sleep(0.5)
    mine.rmdir()

def fails_elsewhere(client_dir):
    def other():
        assert 1 == 2
    call_in_subprocess(other)

def dies_elsewhere(client_dir):
    try:
        call_in_subprocess(lambda: os.kill(os.getpid(), signal.SIGBUS))
    except KilledBySignal as signalled:
        assert signalled.number == signal.SIGBUS
        return
    assert False
"""


@pytest.fixture
def cases(python: str, tmp_path: Path):
    """Return a function that runs functions of the suite and returns their lines of progress, by name."""

    def run(
        *names: str,
        each: float = 20.0,
        source: str = SUITE,
        beside: int = 1,
        alone: str = "",
        **arguments: Any,
    ) -> dict[str, Any]:
        request = {
            "command": "run_cases",
            "deadline": 60,
            "path": str(tmp_path),
            "timeout": each,
            "concurrency": beside,
            "modules": {"m": {"file": "/suites/test_m.py", "source": source}},
            "cases": [
                {
                    "id": name,
                    "module": "m",
                    "function": name,
                    "arguments": arguments,
                    "fixture": "client_dir",
                    "argument": "client_dir",
                    "index": index,
                    "name": f"c{index}",
                    "exclusive": name == alone,
                }
                for index, name in enumerate(names)
            ],
        }
        done = subprocess.run(
            [python, "-I", "-S", "-c", bundle.START],
            input=bundle.message(request),
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.stderr == b""
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines[-1] == {"t": "result", "value": {"begun": len(lines) - 1}}
        return {line["case"]: line for line in lines[:-1]}

    return run


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SUITE.splitlines(), start=1) if text in line)


def test_a_body_that_comes_to_its_end(cases, tmp_path: Path):
    said = cases("passes")["passes"]
    assert said["ended"] == "passed"
    assert said["observed"] == ["one of two"]
    assert list(tmp_path.iterdir()) == []


def test_parameters_are_passed_on(cases):
    assert cases("takes", word="x")["takes"]["ended"] == "passed"
    assert cases("takes", word="y")["takes"]["message"] == "'y' == 'x'"


@pytest.mark.parametrize(
    ("name", "ended", "message"),
    [
        ("fails", "failed", "too small (4 < 5 < 4)"),
        ("fails_without_words", "failed", ""),
        ("fails_in_a_helper", "failed", "'a' in 'b'"),
        ("is_not_refused", "failed", "mkdir has to be refused by EEXIST; it succeeded (None)"),
        (
            "is_refused_otherwise",
            "failed",
            "rmdir has to be refused by EEXIST or ENOTEMPTY; it was refused by ENOENT",
        ),
        ("cannot", "skipped", "no such thing here"),
        ("exits", "error", "its process exited (0) before the body returned"),
        ("leaves", "error", "SystemExit: 3"),
        ("crashes", "error", "it died: SIGSEGV"),
        ("is_wrong", "error", "AttributeError: 'NoneType' object has no attribute 'nothing'"),
        ("fails_elsewhere", "failed", "in the other process: 1 == 2"),
        ("dies_elsewhere", "passed", ""),
        ("is_given_a_deep_tree", "passed", ""),
    ],
)
def test_how_a_body_ends(cases, tmp_path: Path, name: str, ended: str, message: str):
    said = cases(name)[name]
    assert (said["ended"], said.get("message", "")) == (ended, message)
    if name not in {"exits", "crashes"}:  # who dies tidies nothing up; that goes when the target is released
        assert list(tmp_path.iterdir()) == []


def test_what_one_of_several_errors_came_is_observed(cases):
    name = "is_refused_by_one_of_two"
    assert cases(name)[name]["observed"] == ["rmdir is refused by ENOENT"]


def test_the_lines_that_broke_are_named_from_the_outside_in(cases):
    assert cases("fails")["fails"]["lines"] == [line_of("limit - 1")]
    said = cases("fails_in_a_helper")["fails_in_a_helper"]
    assert said["lines"] == [line_of("    helper()"), line_of('"a" in "b"')]


def test_a_system_calls_error_is_named(cases):
    said = cases("an_error_that_is_no_claim")["an_error_that_is_no_claim"]
    assert (said["ended"], said["errno"]) == ("failed", "ENOENT")
    assert "a call that has to succeed was refused by ENOENT" in said["message"]


def test_a_case_that_hangs_is_ended_with_what_it_started_and_the_next_one_runs(cases):
    began = time.monotonic()
    found = cases("hangs", "hangs_with_a_child", "passes", each=1.5)
    assert [one["ended"] for one in found.values()] == ["hung", "hung", "passed"]
    assert found["hangs"]["message"] == "it did not end within 1.5 s"
    assert time.monotonic() - began < 30


def test_after_three_that_hang_the_rest_is_left_alone(cases):
    found = cases("hangs", "hangs_with_a_child", "leaves_hanging", "passes", each=0.5)
    assert [one["ended"] for one in found.values()] == ["hung"] * 3


def test_a_process_that_a_body_leaves_is_ended(cases):
    began = time.monotonic()
    assert cases("leaves_a_child", "passes")["leaves_a_child"]["ended"] == "passed"
    assert time.monotonic() - began < 30


def test_a_process_takes_the_next_case(cases):
    found = cases("says_its_process", "cannot", "prints", "says_its_process_too")
    assert found["says_its_process"]["observed"] == found["says_its_process_too"]["observed"]
    assert found["says_its_process_too"]["printed"] == ""


@pytest.mark.parametrize(
    "name",
    [
        "fails",
        "an_error_that_is_no_claim",
        "leaves_a_child",
        "leaves_a_descriptor",
        "leaves_a_mask",
        "leaves_a_handler",
        "leaves_a_timer",
        "leaves_another_user",
        "leaves_a_limit",
        "leaves_a_thread",
    ],
)
def test_after_a_case_that_fails_or_leaves_something_there_is_a_new_process(cases, name: str):
    if name == "leaves_another_user" and os.geteuid() != 0:
        pytest.skip("only root can be another user")
    found = cases("says_its_process", name, "says_its_process_too", "says_its_process_at_last")
    seen = [found[each]["observed"] for each in found if each.startswith("says")]
    assert seen[0] != seen[1] == seen[2]


def test_several_run_at_once_where_they_may(cases):
    assert {one["ended"] for one in cases("meets", "meets_too", beside=2).values()} == {"passed"}


@pytest.mark.parametrize("alone", ["meets", "meets_too"])
def test_nothing_runs_beside_a_case_that_is_to_be_alone(cases, alone: str):
    assert {one["ended"] for one in cases("meets", "meets_too", beside=2, alone=alone).values()} == {
        "skipped"
    }


def test_an_agent_that_is_attended_ends_when_nobody_is_there_any_more(python: str, tmp_path: Path):
    case = {
        "id": "x",
        "module": "m",
        "function": "hangs",
        "arguments": {},
        "fixture": "client_dir",
        "argument": "client_dir",
    }
    request = {
        "command": "run_cases",
        "deadline": 60,
        "path": str(tmp_path),
        "timeout": 50,
        "end_on_eof": True,
        "modules": {"m": {"file": "m.py", "source": SUITE}},
        "cases": [{**case, "index": 0, "name": "c0"}],
    }
    began = time.monotonic()
    done = subprocess.run(
        [python, "-I", "-S", "-c", bundle.START],
        input=bundle.message(request),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout) == {"t": "result", "value": {"begun": 1}}
    assert time.monotonic() - began < 40


def test_an_agent_that_is_told_to_end_ends_its_cases(started, tmp_path: Path):
    source = f"""
import os, time
from storagetest.agent.testlib import SubprocessCall

def test_hang(client_dir):
    other = SubprocessCall(time.sleep, [60])
    with open({str(tmp_path / "pids")!r}, "w") as file:
        file.write(f"{{os.getpid()}} {{other.pid}} ")
    time.sleep(60)
"""
    case = {
        "id": "x",
        "module": "m",
        "function": "test_hang",
        "arguments": {},
        "fixture": "client_dir",
        "argument": "client_dir",
    }
    agent = started(
        {
            "command": "run_cases",
            "deadline": 60,
            "path": str(tmp_path),
            "timeout": 50,
            "modules": {"m": {"file": "m.py", "source": source}},
            "cases": [{**case, "index": 0, "name": "c0"}],
        }
    )
    pids = tmp_path / "pids"
    wait_until(lambda: pids.exists() and pids.read_text().endswith(" "), 30, "the case to begin")
    agent.terminate()
    agent.wait(30)
    numbers = pids.read_text().split()
    wait_until(lambda: not any(alive(number) for number in numbers), 10, "its processes to be gone")


def alive(pid: str) -> bool:
    """Whether a process runs; a zombie that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_body_prints_is_kept_and_is_no_answer(cases):
    said = cases("prints")["prints"]
    assert said["ended"] == "passed"
    assert "a word" in said["printed"]
    assert "\\xff\\xfe" in said["printed"]


def test_a_body_that_scribbles_over_its_answer_is_an_error_and_no_pass(cases):
    found = cases("scribbles", "passes")
    assert found["scribbles"]["ended"] == "error"
    assert found["passes"]["ended"] == "passed"


@pytest.mark.parametrize(
    ("source", "words"),
    [("import no_such_module\n", "No module named 'no_such_module'"), ("def f(:\n", "SyntaxError")],
)
def test_a_module_that_cannot_be_imported_there(cases, source: str, words: str):
    said = cases("f", source=source)["f"]
    assert said["ended"] == "error"
    assert "cannot be imported here (Python 3" in said["message"]
    assert words in said["message"]
