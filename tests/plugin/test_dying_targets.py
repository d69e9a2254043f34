"""Targets that die in the middle of a run: one failure, at the case that did it."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from output_files import case_outcomes, read_cases

from storagetest import polling
from storagetest.plugin.conformance import crash_watch

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))
import fuse_mount

RELEASE = """\
import storagetest.protocols.local as local
from contextlib import contextmanager
from storagetest.errors import TargetDead
from storagetest.protocols.base import register


@register
class Stubborn(local.Local):
    name = "stubborn"

    class Options(local.Local.Options):
        pass

    @contextmanager
    def acquire(self, attaching, options):
        with super().acquire(attaching, options) as attachment:
            yield attachment
        raise TargetDead(f"{options.path}: gocryptfs could not be released")
"""
TARGETS = """\
version: 1
clients:
  here: {transport: local}
targets:
  disk: {protocol: stubborn, path: DIRECTORY/disk, clients: [here]}
  other: {protocol: local, path: DIRECTORY/other, clients: [here]}
"""
TWO_CASES = """\
import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_case(attachment, number):
    pass
"""


def test_a_failing_release_is_blamed_on_its_own_variant(run_pytest, pytester):
    pytester.makeconftest(RELEASE)
    result = run_pytest("-v", suite=TWO_CASES, targets=TARGETS)
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_case?disk-2?*"])
    result.stdout.no_fnmatch_line("*other is dead*")
    result.stdout.fnmatch_lines(["*test_case?other-1? PASSED*", "*test_case?other-2? PASSED*"])


SLOW = """\
import storagetest.protocols.local as local
from storagetest.errors import DeadlineExceeded, HostError, TargetDead
from storagetest.protocols.base import register

SILENCES = [1 if name in (FAULT, "both") else 0 for name in ("attach", "probe")]


def silence(at, error):
    if SILENCES[at] and not REPEATS:
        SILENCES[at] -= 1
    elif not (SILENCES[at] and REPEATS):
        return
    if error is HostError:
        raise HostError("here: root@192.0.2.1:22 did not answer within 10 s")
    raise TargetDead("disk: no response to here within 10 s") from DeadlineExceeded("timeout")


@register
class Slow(local.Local):
    name = "stubborn"

    class Options(local.Local.Options):
        deadline: float = 0.3 if REPEATS else 60.0  # of a wait that ends only with it, or a bound on a hang

    def attach(self, client, options):
        silence(0, ERROR)
        return super().attach(client, options)

    def probe(self, client, options):
        silence(1, TargetDead)
"""
ERROR_IN_A_CASE = """\
import pytest
from storagetest.errors import StoragetestError

@pytest.mark.parametrize("number", [1, 2, 3])
def test_case(attachment, number):
    if number == 1:
        raise StoragetestError("a case's own")
"""


def slow_protocol(fault: str, *, error: str = "TargetDead", repeats: bool) -> str:
    """Return a conftest.py with a target that is silent at ``fault``, once or always."""
    return f"FAULT, REPEATS = {fault!r}, {repeats}\n" + SLOW.replace("ERROR", error)


@pytest.mark.parametrize("error", ["TargetDead", "HostError"])
def test_a_client_that_was_slow_once_costs_no_case(run_pytest, pytester, error):
    pytester.makeconftest(slow_protocol("attach", error=error, repeats=False))
    run_pytest(suite=TWO_CASES, targets=TARGETS).assert_outcomes(passed=4)


def test_a_target_that_is_silent_twice_is_dead(run_pytest, pytester):
    pytester.makeconftest(slow_protocol("attach", repeats=True))
    result = run_pytest("-rs", suite=TWO_CASES, targets=TARGETS)
    result.assert_outcomes(passed=2, errors=1, skipped=1)
    result.stdout.fnmatch_lines(["*disk is dead: disk: no response to here within 10 s*"])


def test_a_look_of_a_slow_client_that_meets_silence_once_costs_that_case_alone(
    run_pytest, pytester, monkeypatch
):
    monkeypatch.setattr("storagetest.plugin.run_state._answer_time", lambda client: 12.0)
    pytester.makeconftest(slow_protocol("probe", repeats=False))
    result = run_pytest("--st-target=disk", suite=ERROR_IN_A_CASE, targets=TARGETS)
    result.assert_outcomes(passed=2, errors=1)


@pytest.mark.parametrize("seconds", [0.1, 12.0])
def test_after_an_error_a_target_that_stays_silent_is_dead(run_pytest, pytester, monkeypatch, seconds):
    monkeypatch.setattr("storagetest.plugin.run_state._answer_time", lambda client: seconds)
    pytester.makeconftest(slow_protocol("probe", repeats=True))
    result = run_pytest("-rs", "--st-target=disk", suite=ERROR_IN_A_CASE, targets=TARGETS)
    result.assert_outcomes(errors=1, skipped=2)
    result.stdout.fnmatch_lines(["*disk is dead: disk: no response to here within 10 s*"])


def test_a_client_that_answers_nothing_condemns_no_target(run_pytest, pytester, monkeypatch):
    monkeypatch.setattr("storagetest.plugin.run_state._answer_time", lambda client: None)
    pytester.makeconftest(slow_protocol("probe", repeats=True))
    result = run_pytest("--st-target=disk", suite=ERROR_IN_A_CASE, targets=TARGETS)
    result.assert_outcomes(passed=2, errors=1)


CRASH = """\
import os
import signal

import pytest

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(section="X 1", level="MUST")]


def cases(prefix, count):
    return pytest.mark.parametrize(
        "number", [pytest.param(n, marks=pytest.mark.case(f"{prefix}-{n}")) for n in range(count)]
    )


@cases("BEFORE", 6)
def test_before(client_dir, number):
    (client_dir / "f").write_bytes(b"x")


@pytest.mark.exclusive
@pytest.mark.case("CRASH")
def test_crash(client_dir):
    try:
        os.kill(SERVER, signal.SIGKILL)
    except ProcessLookupError:  # on the other target
        pass
    (client_dir / "f").write_bytes(b"x")


@cases("AFTER", 40)
def test_after(client_dir, number):
    (client_dir / "f").write_bytes(b"x")
"""


@pytest.fixture
def fuse_disk(pytester, tmp_path) -> Iterator[int]:
    """Mount a file system on ``disk``; yield the process id of its server."""
    if (why := fuse_mount.why_not()) is not None:
        pytest.skip(why)
    (tmp_path / "below").mkdir()
    disk = pytester.path / "disk"
    disk.mkdir()
    with (
        pytest.raises(fuse_mount.FuseError, match="or its mount was lost"),
        fuse_mount.mounted("fuse_passthrough:PassThrough", tmp_path / "below", disk),
    ):
        (line,) = [line for line in Path("/proc/mounts").read_text().splitlines() if f" {disk} " in line]
        yield int(line.split()[0].rpartition(":")[2])


def test_a_file_system_that_crashes_is_one_failure(run_pytest, pytester, fuse_disk: int):
    result = run_pytest(suite=CRASH.replace("SERVER", str(fuse_disk)))
    outcomes = case_outcomes(pytester.path, "disk")
    assert [name for name, outcome in outcomes.items() if outcome in ("failed", "error")] == ["CRASH"]
    assert {outcomes[f"AFTER-{number}"] for number in range(40)} == {"skipped"}
    records = read_cases(pytester.path, "disk")
    assert "disk is dead" in records["AFTER-7"]["message"]
    assert "is lost: Transport endpoint is not connected" in records["CRASH"]["message"]
    assert set(case_outcomes(pytester.path, "other").values()) == {"passed"}
    result.assert_outcomes(failed=1, passed=6 + 47, skipped=40)


def test_a_crash_among_other_cases_is_one_failure_that_names_those_at_the_same_time(
    run_pytest, pytester, fuse_disk: int
):
    suite = CRASH.replace("SERVER", str(fuse_disk)).replace("@pytest.mark.exclusive\n", "")
    run_pytest(suite=suite)
    records = read_cases(pytester.path, "disk")
    (red,) = [record for record in records.values() if record["outcome"] in ("failed", "error")]
    assert red["outcome"] == "failed"
    assert red["message"].startswith("the target died in this case")
    assert red["id"] == "CRASH" or "(or in a case that ran at the same time: test_" in red["message"]


KILL = """\
    try:
        os.kill(SERVER, signal.SIGKILL)
    except ProcessLookupError:  # on the other target
        pass
    (client_dir / "f")"""
READ_ONLY = CRASH.replace(KILL, '    (client_dir / "last")')


def test_a_file_system_that_becomes_read_only_fails_one_case_after_the_one_that_did_it(
    run_pytest, pytester, tmp_path
):
    """The directory of the first cannot be removed, that of the second cannot be made."""
    if (why := fuse_mount.why_not()) is not None:
        pytest.skip(why)
    (tmp_path / "below").mkdir()
    disk = pytester.path / "disk"
    disk.mkdir()
    with fuse_mount.mounted("fuse_read_only:ReadOnlyLater", tmp_path / "below", disk):
        run_pytest(suite=READ_ONLY)
    records = read_cases(pytester.path, "disk")
    red = [name for name, record in records.items() if record["outcome"] in ("failed", "error")]
    assert len(red) == 2 and red[0] == "CRASH", red
    assert "what a case has left cannot be removed" in records["CRASH"]["message"]
    assert "Read-only file system" in records[red[1]]["message"]
    after = [records[f"AFTER-{number}"] for number in range(40)]
    assert sum(one["outcome"] == "skipped" for one in after) == 39
    assert set(case_outcomes(pytester.path, "other").values()) == {"passed"}


WIRE = """\
import os
import select
import signal

import pytest
from storagetest.wire.tcp import RecordedConnection

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(section="X 1", level="MUST")]


@pytest.fixture
def connection(variant):
    options = variant.options
    with RecordedConnection.connect(options.address, options.port, deadline=2) as link:
        yield link


@pytest.fixture
def undone(variant):
    yield
    RecordedConnection.connect(variant.options.address, variant.options.port, deadline=2).close()


def end_of_server():
    # Its connections end before its listening socket does: what comes after must find neither.
    watched = os.pidfd_open(SERVER)
    os.kill(SERVER, signal.SIGKILL)
    select.select([watched], [], [], 60)
    os.close(watched)


@pytest.mark.case("BEFORE")
def test_before(connection):
    pass


@pytest.mark.case("CRASH")
def test_crash(undone, connection):
    end_of_server()
    connection.receive(deadline=5)
    assert connection.closed_how is None, "the target closed the connection"


@pytest.mark.case("AFTER-1")
def test_after(connection):
    pass


@pytest.mark.case("AFTER-2")
def test_later(connection):
    pass
"""
SERVER = Path(__file__).parents[1] / "controllers" / "nvme_tcp_server.py"


def start_server(port: int = 0) -> tuple[subprocess.Popen[str], int]:
    argv = [sys.executable, str(SERVER), str(port)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.fixture
def run_crash(run_on_target, pytester, monkeypatch):
    """Return a function that runs WIRE on a server that it kills.

    The server may be started again, as soon as the plugin has found that it accepts no connection.
    """
    processes = []
    missed = threading.Event()

    def wait_until(*args: Any, **options: Any) -> Any:
        missed.set()
        return polling.wait_until(*args, **options)

    monkeypatch.setattr(crash_watch, "wait_until", wait_until)

    def run(suite: str = WIRE, *, restarts: bool):
        first, port = start_server()
        processes.append(first)

        def restart() -> None:
            first.wait()
            if restarts and missed.wait(60):
                processes.append(start_server(port)[0])

        restarting = threading.Thread(target=restart)
        restarting.start()
        pytester.makepyfile(test_wire=suite.replace("SERVER", str(first.pid)))
        target = {"protocol": "nvme-tcp", "port": port, "nqn": "nqn.2026-11.org.storagetest:x"}
        if restarts:
            target["deadline"] = "60s"  # a bound on the start of a process on a busy machine
        try:
            result, outcomes = run_on_target(target, str(pytester.path / "test_wire.py"))
        finally:
            first.kill()
            restarting.join()
        return result, outcomes, read_cases(pytester.path)

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def test_a_wire_target_that_is_restarted_is_waited_for(run_crash):
    result, outcomes, records = run_crash(restarts=True)
    assert outcomes == {"BEFORE": "passed", "CRASH": "failed", "AFTER-1": "passed", "AFTER-2": "passed"}
    (observed,) = records["CRASH"]["observed"]
    assert re.fullmatch(
        r"127.0.0.1:\d+ accepted no connection in or after this case, for \d+\.\d s", observed
    )
    result.assert_outcomes(passed=3, failed=1)


def test_a_wire_target_that_stays_dead_is_one_failure(run_crash):
    result, outcomes, records = run_crash(restarts=False)
    assert outcomes == {"BEFORE": "passed", "CRASH": "failed", "AFTER-1": "skipped", "AFTER-2": "skipped"}
    assert re.search(
        r"disk is dead: 127.0.0.1:\d+ accepts no connection since test_crash.disk., for 2 s",
        records["AFTER-2"]["message"],
    )
    result.assert_outcomes(passed=1, failed=1, skipped=2)


@pytest.mark.parametrize("level", ["SHOULD", "MAY"])
def test_the_end_of_a_wire_target_is_a_failure_at_every_level(run_crash, level):
    suite = WIRE.replace('case("CRASH")', f'case("CRASH", level="{level}")')
    _, outcomes, _ = run_crash(suite, restarts=False)
    assert outcomes == {"BEFORE": "passed", "CRASH": "failed", "AFTER-1": "skipped", "AFTER-2": "skipped"}


def test_a_target_that_died_before_a_case_is_not_blamed_on_that_case_alone(run_crash):
    suite = WIRE.replace("def test_crash(undone, ", "def test_crash(")
    suite = suite.replace(
        '    assert connection.closed_how is None, "the target closed the connection"\n', ""
    )
    result, outcomes, records = run_crash(suite, restarts=False)
    assert outcomes == {"BEFORE": "passed", "CRASH": "passed", "AFTER-1": "error", "AFTER-2": "skipped"}
    assert records["AFTER-1"]["observed"][0].endswith("; the case before it was test_crash[disk]")
    result.assert_outcomes(passed=2, errors=1, skipped=1)


HALF_A_SECOND = """\
from storagetest.runner.client_cases import ClientCaseBatch

ClientCaseBatch.__init__.__kwdefaults__["timeout"] = 0.5
"""
HANG = """\
import time

import pytest

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(section="X 1", level="MAY")]


@pytest.mark.case("HANG")
def test_hang(client_dir):
    time.sleep(600)


@pytest.mark.case("SLOW")
def test_slow(client_dir):
    for _ in range(60000):
        time.sleep(0.01)


@pytest.mark.case("AFTER")
def test_after(client_dir):
    pass
"""


def test_a_call_that_does_not_return_is_a_failure_at_every_level(run_pytest, pytester):
    pytester.makeconftest(HALF_A_SECOND)
    run_pytest("--st-target=disk", suite=HANG)
    records = read_cases(pytester.path, "disk")
    outcomes = {name: record["outcome"] for name, record in records.items()}
    assert outcomes == {"HANG": "failed", "SLOW": "error", "AFTER": "observed"}
    assert records["HANG"]["message"].startswith("a call did not return within 0.5 s")
