"""Client cases under xdist: each runs once, and a case with the mark ``exclusive`` runs alone."""

from __future__ import annotations

from collections import Counter

import pytest

# A case logs its begin and end; O_APPEND keeps the order over all processes.
SUITE = """\
import os

import pytest

pytestmark = [pytest.mark.needs("filesystem")]

def log(event, name):
    fd = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{{event}} {{name}} {{os.getpid()}}\\n".encode())
    os.close(fd)

def body(directory, name):
    log("begin", name)
    for number in range(300):
        os.mkdir(directory / str(number))
    log("end", name)

@pytest.mark.parametrize("number", range(6))
def test_many(client_dir, number):
    body(client_dir, "{module}-" + str(number))

@pytest.mark.exclusive
@pytest.mark.parametrize("number", range(2))
def test_exclusive(client_dir, number):
    body(client_dir, "{module}-exclusive-" + str(number))

@pytest.mark.parametrize("number", range(2))
def test_more(client_dir, number):
    body(client_dir, "{module}-more-" + str(number))
"""


def concurrent_with_exclusive(events: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the pairs of cases that ran at the same time, one of them with the mark ``exclusive``."""
    pairs, running = [], set()
    for event, name, process in events:
        if event == "end":
            running.remove((name, process))
            continue
        pairs += [(name, other) for other, _ in running if "exclusive" in name + other]
        running.add((name, process))
    return pairs


@pytest.mark.parametrize(("dist", "times"), [("worksteal", 1), ("loadfile", 1), ("each", 2)])
def test_a_case_runs_once_and_an_exclusive_one_runs_alone(run_pytest, pytester, dist: str, times: int):
    log = pytester.path / "log"
    modules = {f"test_{name}": SUITE.format(log=str(log), module=name) for name in ("one", "two", "three")}
    pytester.makepyfile(**modules)
    result = run_pytest("--st-target", "disk", "-n", "2", "--dist", dist, suite="")
    result.assert_outcomes(passed=30 * times)
    events = [tuple(line.split()) for line in log.read_text().splitlines()]
    runs = Counter(name for event, name, _ in events if event == "begin")
    assert (len(runs), set(runs.values())) == (30, {times})
    assert concurrent_with_exclusive(events) == []


LOCKS = """\
import os, pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    yield
    for fd in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{fd}"
        name = os.path.basename(os.readlink(path)) if os.path.exists(path) else ""
        if name.startswith(("client", "server")):
            mode = "exclusive" if "WRITE" in open(f"/proc/self/fdinfo/{fd}").read() else "shared"
            print(f"\\n{item.originalname} {name.partition('_')[0]} {mode}")
"""


def test_an_exclusive_case_locks_the_server_exclusively(run_pytest, pytester):
    pytester.makeconftest(LOCKS)
    suite = SUITE.format(log=str(pytester.path / "log"), module="one")
    result = run_pytest("--st-target", "disk", "-s", "-k", "0", suite=suite)
    assert {line for line in result.outlines if line.endswith(("shared", "exclusive"))} == {
        *(f"test_{name} {machine} shared" for name in ("many", "more") for machine in ("client", "server")),
        "test_exclusive client shared",
        "test_exclusive server exclusive",
    }
