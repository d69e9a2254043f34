"""What a pytest imports that does not use storagetest, and what makes it begin to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    *("scipy", "numpy", "paramiko", "pydantic", "yaml", "rich", "allure_commons"),
    *(f"storagetest.{name}" for name in ("runner", "workloads", "wire", "lab", "report", "config", "hosts")),
}

# allure-pytest, pytest-benchmark and others import what they like, so only the plugin is loaded.
CHILD = """\
import json, sys
import pytest
code = pytest.main(["-p", "no:cacheprovider", "-p", "storagetest.plugin.hooks", *sys.argv[1:]])
print(json.dumps([int(code), sorted(sys.modules)]))
"""


def loaded(path: Path, *arguments: str) -> tuple[int, set[str]]:
    """Run pytest in ``path`` with no plugin but ours; return its exit code and which of HEAVY it imported."""
    done = subprocess.run(
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
    code, modules = json.loads(done.stdout.splitlines()[-1])
    return code, HEAVY & set(modules)


@pytest.mark.parametrize(
    "arguments", [(), ("--markers",), ("--fixtures",)], ids=["run", "markers", "fixtures"]
)
def test_another_project_does_not_pay(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "test_own.py").write_text(
        "import pytest\n"
        "@pytest.fixture(params=[1, 2])\n"
        "def variant(request): return request.param\n"
        "@pytest.fixture\n"
        "def client(): return 3\n"
        "def test_fixtures_of_its_own(variant, client): assert (variant < client) is True\n"
        "@pytest.mark.parametrize('variant', [5])\n"
        "def test_a_parameter_of_its_own(variant): assert variant == 5\n"
    )
    assert loaded(tmp_path, *arguments) == (0, set())


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
    ids=["targets", "option", "fixture", "mark", "foreign"],
)
def test_it_is_loaded_at_its_first_use(
    tmp_path: Path, files: dict[str, str], arguments: tuple[str, ...]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert "storagetest.config" in loaded(tmp_path, *arguments)[1]


def test_what_is_only_collected_measures_nothing_and_reaches_no_host(tmp_path: Path) -> None:
    """With a targets file, what judges and what connects is still imported at its first use."""
    (tmp_path / "targets.yaml").write_text(
        f"version: 1\nclients: {{here: {{transport: local}}}}\n"
        f"targets: {{disk: {{protocol: local, path: {tmp_path}, clients: [here]}}}}\n"
    )
    (tmp_path / "test_one.py").write_text("def test_one(measure): pass\n")
    code, modules = loaded(tmp_path, "--collect-only")
    assert (code, modules & {"scipy", "numpy", "paramiko", "rich"}) == (0, set())


def test_the_controller_of_workers_that_use_it_writes_what_they_found(pytester: pytest.Pytester) -> None:
    """It collects nothing itself, so it learns from the first report that a case was run."""
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.parametrize("name", [
            pytest.param(name, marks=pytest.mark.case(name, section="1", level="MAY")) for name in "ABC"
        ])
        def test_case(name): assert name == "A"
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2")
    lines = (pytester.path / "cases.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == ["A", "B", "C"]
    result.stdout.fnmatch_lines(["*3 observed*"])


def test_a_case_without_a_targets_file_says_what_to_do(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(measure): pass\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "create it with `storagetest init ADDRESS`" in result.stderr.str()
