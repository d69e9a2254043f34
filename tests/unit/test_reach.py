"""What a change reaches, and the times of the parts of script/test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import reach


@pytest.fixture(scope="module")
def graph():
    return reach.import_graph()


@pytest.fixture(scope="module")
def tests() -> dict[str, set[str]]:
    root = reach.ROOT / "tests"
    return {path.relative_to(reach.ROOT).as_posix(): reach.names_in(path) for path in root.rglob("*.py")}


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("src/storagetest/units.py", "storagetest.units"),
        ("src/storagetest/lab/__init__.py", "storagetest.lab"),
        ("src/storagetest/lab/guest/boot.sh", "storagetest.lab.guest"),
        ("docs/lab.md", None),
    ],
)
def test_the_module_of_a_path(path: str, module: str | None) -> None:
    assert reach.module_of(path) == module


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ("src/storagetest/wire/crc.py", "tests/wire/test_wire_iscsi_pdu.py"),
        ("src/storagetest/lab/qemu.py", "tests/unit/lab/test_lab_machines.py"),
        ("src/storagetest/protocols/nfs.py", "tests/plugin/test_outcomes.py"),  # loaded by a registry
        ("src/storagetest/commands/init.py", "tests/unit/commands/test_commands_init.py"),
        ("tests/kits/output_files.py", "tests/plugin/test_baselines.py"),
        ("tests/unit/runner/conftest.py", "tests/unit/runner/test_runner_killed.py"),
        ("tests/unit/test_units.py", "tests/unit/test_units.py"),
        ("mkdocs.yml", "tests/unit/test_generated_pages.py"),
    ],
)
def test_a_change_reaches_a_test(graph, tests, changed: str, reached: str) -> None:
    assert (reach.ROOT / changed).exists()
    module = reach.module_of(changed)
    modules = reach.reached_modules(graph, [module] if module else [])
    assert reached in reach.reached_tests([changed], tests, modules)


@pytest.mark.parametrize("changed", ["src/storagetest/wire/nvme_tcp/pdu.py", "tests/unit/test_units.py"])
def test_a_change_does_not_reach_the_tests_of_the_lab(graph, tests, changed: str) -> None:
    module = reach.module_of(changed)
    modules = reach.reached_modules(graph, [module] if module else [])
    reached = {Path(path).name for path in reach.reached_tests([changed], tests, modules)}
    assert reached
    assert "test_lab_qemu.py" not in reached


def test_a_change_below_a_suite_reaches_what_runs_suites_and_no_other_test_of_the_plugin(
    graph, tests
) -> None:
    """No module imports the suites, so they do not reach the plugin."""
    modules = reach.reached_modules(graph, ["storagetest.wire.nvme_tcp.session"])
    assert reach.PLUGIN not in modules
    reached = reach.reached_tests(["src/storagetest/wire/nvme_tcp/session.py"], tests, modules)
    assert "tests/plugin/test_suite_guards_nvme_tcp.py" in reached
    assert "tests/mutants/test_mutants_nvme_tcp.py" in reached
    assert "tests/lab/test_block_cases.py" in reached
    assert "tests/wire/test_wire_nvme_session.py" in reached
    assert "tests/plugin/test_outcomes.py" not in reached


@pytest.mark.parametrize(
    ("path", "reached"),
    [
        ("src/storagetest/lab/guest/boot.sh", "tests/unit/lab/test_lab_machines.py"),
        ("src/storagetest/lab/deleted.py", "tests/unit/lab/test_lab_machines.py"),
        ("src/storagetest/no_package/deleted.py", "tests/unit/test_units.py"),
        ("requirements.lock", "tests/unit/test_units.py"),
    ],
)
def test_data_deleted_modules_and_configuration_reach_what_may_use_them(
    graph, tests, path: str, reached: str
):
    module = reach.module_of(path)
    modules = reach.reached_modules(graph, [module] if module else [])
    assert reached in reach.reached_tests([path], tests, modules)


def test_a_deleted_helper_reaches_the_tests_that_name_it(tests) -> None:
    assert "tests/x/test_a.py" in reach.reached_tests(
        ["tests/kits/gone.py"], {"tests/x/test_a.py": {"gone"}, "tests/x/test_b.py": set()}, set()
    )


SCRIPT = Path(__file__).parents[2] / "script" / "part_times.py"


def part_times(directory: Path, **seconds: tuple[float, int]) -> list[str]:
    """Run the script on parts with (seconds, exit status); return its lines."""
    parts = {
        name: {"test": [{"elapsed": elapsed, "retcode": status}]}
        for name, (elapsed, status) in seconds.items()
    }
    result = directory / "result.json"
    result.write_text(json.dumps({"testenvs": {**parts, ".pkg": {"test": []}, "slow": {}}}))
    argv = [sys.executable, SCRIPT, result, directory / "times.json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def test_a_part_that_takes_a_tenth_longer_is_marked(tmp_path: Path) -> None:
    assert part_times(tmp_path, unit=(100, 0), lint=(1, 0)) == ["unit 100.0 s passed", "lint 1.0 s passed"]
    assert part_times(tmp_path, unit=(111, 0), lint=(2, 0)) == [
        "unit 111.0 s passed 100.0 s before SLOWER by more than a tenth",
        "lint 2.0 s passed 1.0 s before",
    ]


def test_a_failed_run_is_not_what_later_runs_are_compared_with(tmp_path: Path) -> None:
    part_times(tmp_path, unit=(100, 0))
    assert part_times(tmp_path, unit=(20, 1)) == ["unit 20.0 s FAILED 100.0 s before"]
    assert part_times(tmp_path, unit=(105, 0)) == ["unit 105.0 s passed 100.0 s before"]
