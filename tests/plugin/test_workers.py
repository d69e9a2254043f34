"""pytest-xdist's workers, and what a start of pytest costs."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from output_files import read_cases
from pytest_results import assert_usage_error

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
    for number in range(40):
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


HEAVY = {
    *("scipy", "numpy", "paramiko", "pydantic", "yaml", "rich", "allure_commons"),
    *(f"storagetest.{name}" for name in ("runner", "workloads", "wire", "lab", "report", "config", "hosts")),
}

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
# Other plugins, such as allure-pytest, would import more; therefore only this one is loaded.
CHILD = """\
import json, sys
import pytest
code = pytest.main(["-p", "no:cacheprovider", "-p", "storagetest.plugin.hooks", *sys.argv[1:]])
print(json.dumps([int(code), sorted(sys.modules)]))
"""


def imported_modules(path: Path, *arguments: str) -> tuple[int, set[str]]:
    """Run pytest in ``path`` with only this plugin; return its exit code and which of HEAVY it imported."""
    process = subprocess.run(
        [sys.executable, "-c", CHILD, "-q", *arguments],
        cwd=path,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    code, modules = json.loads(process.stdout.splitlines()[-1])
    return code, HEAVY & set(modules)


@pytest.mark.parametrize(
    "arguments", [(), ("--markers",), ("--fixtures",)], ids=["run", "markers", "fixtures"]
)
def test_another_project_imports_nothing_heavy(tmp_path, arguments: tuple[str, ...]):
    (tmp_path / "test_own.py").write_text(
        "import pytest\n"
        "@pytest.fixture(params=[1, 2])\n"
        "def variant(request): return request.param\n"
        "@pytest.fixture\n"
        "def client(): return 3\n"
        "def test_own_fixtures(variant, client): assert (variant < client) is True\n"
        "@pytest.mark.parametrize('variant', [5])\n"
        "def test_own_parameter(variant): assert variant == 5\n"
    )
    assert imported_modules(tmp_path, *arguments) == (0, set())


@pytest.mark.parametrize(
    ("files", "arguments"),
    [
        ({"targets.yaml": "version: 1\nclients: {here: {transport: local}}\ntargets: {}\n"}, ()),
        ({}, ("--st-strict",)),
        ({"test_one.py": "def test_one(measure): pass\n"}, ()),
        (
            {
                "test_one.py": "import pytest\n@pytest.mark.case('A', section='1', level='MUST')\n"
                "def test_one(): pass\n"
            },
            (),
        ),
        ({"one.external.toml": "suite = 'iscsi-test-cu'\n"}, ()),
    ],
    ids=["targets", "option", "fixture", "mark", "external"],
)
def test_the_plugin_starts_at_its_first_use(tmp_path, files: dict[str, str], arguments: tuple[str, ...]):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert "storagetest.config" in imported_modules(tmp_path, *arguments)[1]


def test_collection_imports_nothing_that_measures_or_connects(tmp_path):
    (tmp_path / "targets.yaml").write_text(
        f"version: 1\nclients: {{here: {{transport: local}}}}\n"
        f"targets: {{disk: {{protocol: local, path: {tmp_path}, clients: [here]}}}}\n"
    )
    (tmp_path / "test_one.py").write_text("def test_one(measure): pass\n")
    code, modules = imported_modules(tmp_path, "--collect-only")
    assert (code, modules & {"scipy", "numpy", "paramiko", "rich"}) == (0, set())


def test_the_controller_writes_the_cases_of_its_workers(run_inner, pytester):
    """The controller collects nothing. The first report of a case starts the plugin."""
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.parametrize("name", [
            pytest.param(name, marks=pytest.mark.case(name, section="1", level="MAY")) for name in "ABC"
        ])
        def test_case(name): assert name == "A"
        """
    )
    result = run_inner("-n", "2")
    assert sorted(read_cases(pytester.path)) == ["A", "B", "C"]
    result.stdout.fnmatch_lines(["*3 observed*"])


def test_a_case_without_a_targets_file_is_a_usage_error(pytester):
    pytester.makepyfile("def test_one(measure): pass\n")
    assert_usage_error(pytester.runpytest_inprocess(), "create it with `storagetest init ADDRESS`")
