"""The agent as a process: the packed code, its responses and its workers, and what it leaves."""

import ast
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from processes import children, running, wait_until_gone

from storagetest import agent
from storagetest.agent import bundle
from storagetest.agent.op_log import OpLog
from storagetest.agent.worker_pool import CommandError, WorkerPool
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


FOLDER = Path(agent.__file__).parent
MODULES = sorted(path for path in FOLDER.rglob("*.py") if path.name != "bundle.py")
SLOW = {
    "dataclasses",
    "inspect",
    "pathlib",
    "shutil",
    "subprocess",
    "tempfile",
    "logging",
    "argparse",
    "enum",
}

BODIES = {
    ("pathlib", "testlib"),
    ("pathlib", "fixtures"),
    ("subprocess", "testlib"),
    ("dataclasses", "testlib"),
}
"""Bodies of cases use paths and records and may start programs, so their helpers may import these modules."""
EXCEPTIONS = {
    ("subprocess", "undo.py"),
    ("subprocess", "sample_counters.py"),
    ("subprocess", "syscalls.py"),
    ("tempfile", "sample_counters.py"),
}
"""They import it only when they start a program."""


def archive_of(program: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(program)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_zip_has_each_module_and_its_code():
    bundle.packed.cache_clear()
    found = archive_of(bundle.packed())
    names = {f"storagetest/agent/{path.relative_to(FOLDER)}": path for path in MODULES}
    assert set(found) == {"storagetest/__init__.py", *names, *(f"{name}c" for name in names)}
    for name, path in names.items():
        assert found[name] == path.read_bytes()


def run_from(program: bytes, tmp_path: Path, statement: str) -> str:
    """Run ``statement`` with only the zip to import from; return what it prints."""
    (tmp_path / "agent.zip").write_bytes(program)
    text = f"import sys; sys.path.insert(0, {str(tmp_path / 'agent.zip')!r}); {statement}"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", text], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def rewritten(change) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in archive_of(bundle.packed()).items():
            archive.writestr(name, change(name, data))
    return buffer.getvalue()


IMPORT = "import storagetest.agent.dispatch as one; print(one.__file__)"


def test_a_client_of_the_same_python_compiles_no_source(tmp_path):
    program = rewritten(lambda name, data: b"this is no Python" if name.endswith("dispatch.py") else data)
    assert run_from(program, tmp_path, IMPORT).strip().endswith("dispatch.pyc")


def test_a_client_of_another_python_compiles_the_sources(tmp_path):
    program = rewritten(lambda name, data: b"\0\0\0\0" + data[4:] if name.endswith(".pyc") else data)
    assert run_from(program, tmp_path, IMPORT).strip().endswith("dispatch.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_module_parses_on_the_oldest_python_and_imports_no_slow_module(path):
    for node in ast.walk(ast.parse(path.read_text(), feature_version=bundle.OLDEST_PYTHON)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            top = name.partition(".")[0]
            assert top in sys.stdlib_module_names or name.startswith("storagetest.agent"), name
            assert top not in SLOW or (top, path.parts[-2]) in BODIES or (top, path.name) in EXCEPTIONS, name


def test_a_python_that_is_too_old_is_reported(capsys, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 8, 1))
    with pytest.raises(SystemExit) as ended:
        exec(bundle.START, {})
    assert ended.value.code == 1
    assert capsys.readouterr().out == '{"t":"error","kind":"python","message":"3.8"}\n'


class Worker:
    """Generates its operations: one every ms from the start, ``ends[index]`` of them."""

    def __init__(self, index: int) -> None:
        self.index = index

    def identity(self) -> tuple[int, int]:
        return self.index, os.getpid()

    def generate(self, barrier, ends):
        log = OpLog(sized=True)
        start = barrier.wait()
        for number in range(ends[self.index]):
            log.ends.append(start + (number + 1) * 1_000_000)
            log.latencies.append(1_000_000)
            log.sizes.append(10)
        return {"op": log}

    def idle(self, barrier):
        barrier.wait()
        return {"op": OpLog()}

    def fails(self, barrier):
        if self.index == 1:
            raise OSError(28, "No space left on device", b"/here/f1")
        barrier.wait()
        return {}

    def breaks(self):
        raise ZeroDivisionError("oops")

    def leaves(self):
        os._exit(3)

    def sleeps(self):
        time.sleep(60)


@pytest.fixture
def pool():
    with WorkerPool(3, Worker, time.monotonic() + 20) as pool:
        yield pool


def test_each_worker_is_a_separate_process(pool):
    identities = pool.call("identity")
    assert [index for index, _ in identities] == [0, 1, 2]
    assert len({pid for _, pid in identities} | {os.getpid()}) == 4
    assert [index for index, _ in pool.call("identity", only=1)] == [1]


def test_only_operations_in_the_common_window_are_counted(pool):
    report = pool.phase("generate", [1000, 5000, 5000])
    entry = report["operations"]["op"]
    spread_ms = report["spread"] * 1000
    assert entry["total"] == 11_000
    assert 3 * (1000 - spread_ms) - 3 <= entry["ops"] <= 3000 + 3 * spread_ms
    assert entry["bytes"] == 10 * entry["ops"]
    assert sum(entry["bins"].values()) == entry["ops"]
    assert report["overlap"]
    assert report["tail"] == pytest.approx(4.0, abs=report["spread"] + 0.001)
    assert report["seconds"] == pytest.approx(1.0, abs=report["spread"] + 0.001)


def test_until_last_end_all_operations_are_counted(pool):
    report = pool.phase("generate", [10, 100, 100], until_last_end=True)
    assert report["operations"]["op"]["ops"] == 210
    assert report["seconds"] == report["span"]


def test_a_phase_runs_on_some_workers_only(pool):
    assert pool.phase("generate", [10, 10, 10], only=[0, 2])["operations"]["op"]["total"] == 20


def test_without_a_common_window_the_span_is_the_window(pool):
    report = pool.phase("idle")
    assert not report["overlap"]
    assert report["operations"]["op"]["ops"] == 0


def test_a_failure_of_a_worker_fails_the_phase(pool):
    with pytest.raises(CommandError) as failed:
        pool.phase("fails")
    assert failed.value.fields == {
        "kind": "os",
        "errno": "ENOSPC",
        "message": "No space left on device",
        "op": "fails",
        "path": "/here/f1",
    }


@pytest.mark.parametrize(
    ("method", "kind", "message"), [("breaks", "bug", "ZeroDivisionError: oops"), ("leaves", "died", "died")]
)
def test_a_worker_that_raises_or_dies_fails_the_call(pool, method, kind, message):
    with pytest.raises(CommandError, match=message) as failed:
        pool.call(method)
    assert failed.value.fields["kind"] == kind


def test_a_call_ends_at_the_deadline_and_the_workers_are_killed():
    with WorkerPool(2, Worker, time.monotonic() + 3) as pool:
        pids = [pid for _, pid in pool.call("identity")]
        with pytest.raises(CommandError, match="2 of 2 workers did not end by the deadline"):
            pool.call("sleeps")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
