"""The agent's command ``run_cases``: the result of a case for each way its body can end."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until_gone

from storagetest.agent.testlib.assert_rewrite import pack_code
from storagetest.agent.testlib.tmpfiles import pattern_bytes
from storagetest.polling import wait_until

SUITE = """
import errno, os, signal, sys, time
import pytest
from storagetest.agent.testlib import call_in_subprocess, skip, record_observation, assert_errno
from storagetest.agent.testlib import SubprocessCall, KilledBySignal

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(level="MUST")]

@pytest.mark.case("A-1", section="here")
def passes(client_dir):
    assert os.listdir(client_dir) == []
    record_observation("one of two")
    record_observation("one of two")

@pytest.mark.parametrize("word", [pytest.param("x", id="x")])
def checks_its_parameter(client_dir, word):
    assert word == "x"

def fails(client_dir):
    limit = 5
    assert 4 < limit < limit - 1, "too small"

def fails_without_a_message(client_dir):
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

def a_call_fails(client_dir):
    os.unlink(client_dir / "absent")

def skips(client_dir):
    skip("no such thing here")

def exits(client_dir):
    os._exit(0)

def calls_sys_exit(client_dir):
    sys.exit(3)

def crashes(client_dir):
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs(client_dir):
    time.sleep(60)

def is_slow(client_dir):
    for _ in range(30):
        time.sleep(0.05)

def never_ends(client_dir):
    for _ in range(6000):
        time.sleep(0.01)

def has_a_child_that_never_ends(client_dir):
    SubprocessCall(never_ends, [client_dir]).result(within=60)

def hangs_with_a_child(client_dir):
    SubprocessCall(time.sleep, [60])
    time.sleep(60)

def leaves_a_child(client_dir):
    SubprocessCall(time.sleep, [60])

def prints(client_dir):
    print("a word")
    os.write(1, b'{"t":"result","value":{}}\\n{"case":"prints","ended":"failed"}\\n')
    os.write(2, b"\\xff\\xfe")

def writes_to_all_descriptors(client_dir):
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, b"garbage\\n")
        except OSError:
            pass

def is_wrong(client_dir):
    None.nothing

def makes_a_deep_tree(client_dir):
    os.chdir(client_dir)
    for _ in range(40):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)

def records_its_pid(client_dir):
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

def overlaps(client_dir, seconds=5):
    mine = client_dir.parent / f"running-{os.getpid()}"
    mine.mkdir()
    until = time.monotonic() + seconds
    while len(list(client_dir.parent.glob("running-*"))) < 2:
        if time.monotonic() > until:
            mine.rmdir()
            skip("no other case runs")
        time.sleep(0.01)
    time.sleep(0.5)
    mine.rmdir()

def fails_in_a_subprocess(client_dir):
    def other():
        assert 1 == 2
    call_in_subprocess(other)

def dies_in_a_subprocess(client_dir):
    try:
        call_in_subprocess(lambda: os.kill(os.getpid(), signal.SIGBUS))
    except KilledBySignal as signalled:
        assert signalled.number == signal.SIGBUS
        return
    assert False
"""


def request(path: Path, *names: str, source: str = SUITE, exclusive: str = "", **more: Any) -> dict[str, Any]:
    """Return a request for functions of the suite, one case each; ``name#2`` is the same function again."""
    arguments = more.pop("arguments", {})
    cases = [
        {
            "id": name,
            "module": "m",
            "function": name.partition("#")[0],
            "arguments": arguments,
            "fixture": "client_dir",
            "argument": "client_dir",
            "index": index,
            "name": f"c{index}",
            "exclusive": name == exclusive,
        }
        for index, name in enumerate(names)
    ]
    modules = {"m": {"file": "/suites/test_m.py", "source": source, **more.pop("code", {})}}
    base = {"command": "run_cases", "deadline": 60, "path": str(path), "timeout": 20.0, "concurrency": 1}
    return {**base, "modules": modules, "cases": cases, **more}


@pytest.fixture
def cases(ask_lines, tmp_path: Path):
    """Return a function that runs functions of the suite and returns their progress entries, by name."""

    def run(*names: str, **more: Any) -> dict[str, Any]:
        *entries, result = ask_lines(request(tmp_path, *names, **more))
        begun = [entry for entry in entries if not entry.get("message", "").startswith("it was not started")]
        assert result == {"t": "result", "value": {"begun": len(begun)}}
        return {entry["case"]: entry for entry in entries}

    return run


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SUITE.splitlines(), start=1) if text in line)


def test_a_body_that_returns_passes(cases, tmp_path: Path):
    entry = cases("passes")["passes"]
    assert entry["ended"] == "passed"
    assert entry["observed"] == ["one of two"]
    assert list(tmp_path.iterdir()) == []


def test_a_module_runs_from_the_code_that_the_controller_compiled(cases):
    code = pack_code(SUITE, "/suites/test_m.py")
    entry = cases("fails", source="this is no Python", code=code)["fails"]
    assert (entry["ended"], entry["message"]) == ("failed", "too small (4 < 5 < 4)")
    assert entry["lines"] == cases("fails")["fails"]["lines"]


def test_another_python_compiles_the_source(cases):
    code = {**pack_code("this_fails()", "/suites/test_m.py"), "magic": "00000000"}
    assert cases("passes", code=code)["passes"]["ended"] == "passed"


def test_a_module_that_the_controller_cannot_compile_is_sent_without_code():
    assert pack_code("match 1 of 2", "/suites/test_m.py") == {}


@pytest.mark.parametrize("size", [0, 1, 16, 9_999, 10_000, 10_001, 123_457])
def test_each_line_of_the_pattern_is_its_offset(size: int):
    assert pattern_bytes(size) == b"".join(b"%015d\n" % offset for offset in range(0, size, 16))[:size]


def test_parameters_are_passed_on(cases):
    assert cases("checks_its_parameter", arguments={"word": "x"})["checks_its_parameter"]["ended"] == "passed"
    assert (
        cases("checks_its_parameter", arguments={"word": "y"})["checks_its_parameter"]["message"]
        == "'y' == 'x'"
    )


@pytest.mark.parametrize(
    ("name", "ended", "message"),
    [
        ("fails", "failed", "too small (4 < 5 < 4)"),
        ("fails_without_a_message", "failed", ""),
        ("fails_in_a_helper", "failed", "'a' in 'b'"),
        ("is_not_refused", "failed", "mkdir has to be refused by EEXIST; it succeeded (None)"),
        (
            "is_refused_otherwise",
            "failed",
            "rmdir has to be refused by EEXIST or ENOTEMPTY; it was refused by ENOENT",
        ),
        ("skips", "skipped", "no such thing here"),
        ("exits", "error", "its process exited (0) before the body returned"),
        ("calls_sys_exit", "error", "SystemExit: 3"),
        ("crashes", "error", "it died: SIGSEGV"),
        ("is_wrong", "error", "AttributeError: 'NoneType' object has no attribute 'nothing'"),
        ("fails_in_a_subprocess", "failed", "in the other process: 1 == 2"),
        ("dies_in_a_subprocess", "passed", ""),
        ("makes_a_deep_tree", "passed", ""),
    ],
)
def test_the_result_of_each_way_to_end(cases, tmp_path: Path, name: str, ended: str, message: str):
    entry = cases(name)[name]
    assert (entry["ended"], entry.get("message", "")) == (ended, message)
    if name not in {"exits", "crashes"}:  # no clean-up here: the target's release removes the directory
        assert list(tmp_path.iterdir()) == []


def test_the_error_that_occurred_of_several_is_observed(cases):
    name = "is_refused_by_one_of_two"
    assert cases(name)[name]["observed"] == ["rmdir is refused by ENOENT"]


def test_the_failed_lines_are_listed_from_the_outermost_in(cases):
    assert cases("fails")["fails"]["lines"] == [line_of("limit - 1")]
    entry = cases("fails_in_a_helper")["fails_in_a_helper"]
    assert entry["lines"] == [line_of("    helper()"), line_of('"a" in "b"')]


def test_a_system_calls_error_is_named(cases):
    entry = cases("a_call_fails")["a_call_fails"]
    assert (entry["ended"], entry["errno"]) == ("failed", "ENOENT")
    assert "a call that has to succeed was refused by ENOENT" in entry["message"]


def test_a_case_that_hangs_is_killed_with_its_children_and_the_next_runs(cases):
    started_at = time.monotonic()
    entries = cases("hangs", "hangs_with_a_child", "passes", timeout=1.5)
    assert [entry["ended"] for entry in entries.values()] == ["hung", "hung", "passed"]
    assert entries["hangs"]["message"] == "a call did not return within 1.5 s"
    assert time.monotonic() - started_at < 30


def test_a_slow_case_gets_more_time(cases):
    assert cases("is_slow", timeout=0.6)["is_slow"]["ended"] == "passed"


@pytest.mark.parametrize("name", ["never_ends", "has_a_child_that_never_ends"])
def test_a_case_that_makes_calls_without_end_is_slow(cases, name: str):
    entry = cases(name, timeout=0.5)[name]
    assert (entry["ended"], entry["message"]) == (
        "slow",
        "it did not end within 2 s, though its calls return",
    )
    assert 2 <= entry["seconds"] < 10


def test_after_three_cases_that_hang_the_rest_does_not_run(cases):
    entries = cases("hangs", "hangs_with_a_child", "hangs#2", "passes", timeout=0.5)
    assert [entry["ended"] for entry in entries.values()] == ["hung"] * 3 + ["skipped"]
    assert entries["passes"]["message"] == (
        "it was not started, because others did not end: hangs, hangs_with_a_child, hangs#2"
    )


def test_a_process_that_a_body_leaves_is_killed(cases):
    started_at = time.monotonic()
    assert cases("leaves_a_child", "passes")["leaves_a_child"]["ended"] == "passed"
    assert time.monotonic() - started_at < 30


def test_a_process_runs_several_cases(cases):
    entries = cases("records_its_pid", "skips", "prints", "records_its_pid#2")
    assert entries["records_its_pid"]["observed"] == entries["records_its_pid#2"]["observed"]
    assert entries["records_its_pid#2"]["printed"] == ""


@pytest.mark.parametrize(
    "name",
    [
        "fails",
        "a_call_fails",
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
def test_a_case_that_fails_or_changes_its_process_is_followed_by_a_new_process(cases, name: str):
    if name == "leaves_another_user" and os.geteuid() != 0:
        pytest.skip("only root can change its user")
    entries = cases("records_its_pid", name, "records_its_pid#2", "records_its_pid#3")
    pids = [entries[each]["observed"] for each in entries if each.startswith("records")]
    assert pids[0] != pids[1] == pids[2]


def test_cases_run_concurrently(cases):
    entries = cases("overlaps", "overlaps#2", concurrency=2)
    assert {entry["ended"] for entry in entries.values()} == {"passed"}


@pytest.mark.parametrize("exclusive", ["overlaps", "overlaps#2"])
def test_an_exclusive_case_runs_without_others(cases, exclusive: str):
    short = {"seconds": 1.5}
    entries = cases("overlaps", "overlaps#2", concurrency=2, exclusive=exclusive, arguments=short)
    assert {entry["ended"] for entry in entries.values()} == {"skipped"}


def test_an_agent_with_end_on_eof_ends_when_its_stdin_closes(ask_lines, tmp_path: Path):
    started_at = time.monotonic()
    lines = ask_lines(request(tmp_path, "hangs", timeout=50, end_on_eof=True))
    assert lines == [{"t": "result", "value": {"begun": 1}}]
    assert time.monotonic() - started_at < 40


def test_sigterm_to_the_agent_ends_its_cases(started, tmp_path: Path):
    source = f"""
import os, time
from storagetest.agent.testlib import SubprocessCall

def test_hang(client_dir):
    other = SubprocessCall(time.sleep, [60])
    with open({str(tmp_path / "pids")!r}, "w") as file:
        file.write(f"{{os.getpid()}} {{other.pid}} ")
    time.sleep(60)
"""
    agent = started(request(tmp_path, "test_hang", source=source, timeout=50))
    pids = tmp_path / "pids"
    wait_until(lambda: pids.exists() and pids.read_text().endswith(" "), 30, "the case to begin")
    agent.terminate()
    agent.wait(30)
    wait_until_gone(*map(int, pids.read_text().split()))


def test_the_output_of_a_body_is_recorded_and_is_no_result(cases):
    entry = cases("prints")["prints"]
    assert entry["ended"] == "passed"
    assert "a word" in entry["printed"]
    assert "\\xff\\xfe" in entry["printed"]


def test_a_body_that_overwrites_its_result_is_an_error(cases):
    entries = cases("writes_to_all_descriptors", "passes")
    assert entries["writes_to_all_descriptors"]["ended"] == "error"
    assert entries["passes"]["ended"] == "passed"


@pytest.mark.parametrize(
    ("source", "message"),
    [("import no_such_module\n", "No module named 'no_such_module'"), ("def f(:\n", "SyntaxError")],
)
def test_a_module_that_cannot_be_imported_is_an_error(cases, source: str, message: str):
    entry = cases("f", source=source)["f"]
    assert entry["ended"] == "error"
    assert "cannot be imported here (Python 3" in entry["message"]
    assert message in entry["message"]
