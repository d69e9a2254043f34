"""Selection of tests by what a change reaches (tests/kits/reach.py)."""

from __future__ import annotations

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
        ("src/storagetest/lab/qemu.py", "tests/unit/lab/test_lab_qemu.py"),
        ("src/storagetest/protocols/nfs.py", "tests/plugin/test_outcomes.py"),  # loaded by a registry
        ("src/storagetest/commands/init.py", "tests/unit/commands/test_commands_init.py"),
        ("tests/kits/output_files.py", "tests/plugin/test_comparisons.py"),
        ("tests/unit/runner/conftest.py", "tests/unit/runner/test_runner_killed.py"),
        ("tests/unit/test_units.py", "tests/unit/test_units.py"),
        ("mkdocs.yml", "tests/unit/test_docs_nav.py"),
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


@pytest.mark.parametrize(
    ("path", "reached"),
    [
        ("src/storagetest/lab/guest/boot.sh", "tests/unit/lab/test_lab_guest.py"),
        ("src/storagetest/lab/deleted.py", "tests/unit/lab/test_lab_guest.py"),
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
