"""System-call cases under several xdist workers: each runs once, and one marked ``exclusive`` runs alone."""

from __future__ import annotations

from collections import Counter

import pytest

TARGETS = """\
version: 1
clients:
  here: {{transport: local}}
targets:
  disk: {{protocol: local, path: {disk}, clients: [here]}}
"""

# A case notes when it begins and ends; O_APPEND keeps the order over all processes.
SUITE = """\
import os

import pytest

pytestmark = [pytest.mark.needs("filesystem")]

def note(what, name):
    fd = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{{what}} {{name}} {{os.getpid()}}\\n".encode())
    os.close(fd)

def body(directory, name):
    note("begin", name)
    for number in range(300):
        os.mkdir(directory / str(number))
    note("end", name)

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


def beside_exclusive(events: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The cases that ran at the same time as one that is marked ``exclusive``, with that one."""
    found, running = [], set()
    for what, *case in events:
        name, process = case
        if what == "end":
            running.remove((name, process))
            continue
        found += [(name, other) for other, _ in running if "exclusive" in name + other]
        running.add((name, process))
    return found


@pytest.mark.parametrize(("dist", "times"), [("worksteal", 1), ("loadfile", 1), ("each", 2)])
def test_a_case_runs_once_and_an_exclusive_one_runs_alone(
    pytester: pytest.Pytester, dist: str, times: int
) -> None:
    log = pytester.path / "log"
    (pytester.path / "disk").mkdir()
    (pytester.path / "targets.yaml").write_text(TARGETS.format(disk=pytester.path / "disk"))
    modules = {f"test_{name}": SUITE.format(log=str(log), module=name) for name in ("one", "two", "three")}
    pytester.makepyfile(**modules)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2", "--dist", dist)
    result.assert_outcomes(passed=30 * times)
    events = [tuple(line.split()) for line in log.read_text().splitlines()]
    runs = Counter(name for what, name, _ in events if what == "begin")
    assert (len(runs), set(runs.values())) == (30, {times})
    assert beside_exclusive(events) == []


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


def test_an_exclusive_case_has_the_server_to_itself(pytester: pytest.Pytester) -> None:
    (pytester.path / "disk").mkdir()
    (pytester.path / "targets.yaml").write_text(TARGETS.format(disk=pytester.path / "disk"))
    pytester.makeconftest(LOCKS)
    pytester.makepyfile(SUITE.format(log=str(pytester.path / "log"), module="one"))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-s", "-k", "0")
    assert {line for line in result.outlines if line.endswith(("shared", "exclusive"))} == {
        *(f"test_{name} {machine} shared" for name in ("many", "more") for machine in ("client", "server")),
        "test_exclusive client shared",
        "test_exclusive server exclusive",
    }
