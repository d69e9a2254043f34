"""Which mutants ``--mutants changed`` tries."""

import importlib

import pytest
import reach
import selection
from selection import Selection

MUTANTS = [f"mutant-{number}" for number in range(40)]
DEPENDS_ON = ("suites/conformance/posix/", "src/codec/", "tests/mutants/posix_")
SUITES = {
    suite: importlib.import_module(f"test_mutants_{suite}").DEPENDS_ON
    for suite in ("iscsi", "nvme_tcp", "nfs3", "nfs4", "smb2")
}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "ROOT", tmp_path)
    for name in ("suites/conformance/posix/test_rename.py", "tests/mutants/posix_data_mutants.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text('@case(kills=["mutant-7", "mutant-11"])\n')
    return tmp_path


def test_without_a_change_it_is_a_tenth_that_depends_on_the_seed():
    parts = [Selection([], seed).select(MUTANTS, DEPENDS_ON) for seed in ("a", "a", "b")]
    assert [len(part) for part in parts] == [4, 4, 4]
    assert parts[0] == parts[1] != parts[2]


@pytest.mark.parametrize(
    "path", ["suites/conformance/posix/test_rename.py", "tests/mutants/posix_data_mutants.py"]
)
def test_a_changed_file_selects_the_mutants_that_it_names(path):
    for seed in map(str, range(5)):
        chosen = Selection([path], seed).select(MUTANTS, DEPENDS_ON)
        assert {"mutant-7", "mutant-11"} <= chosen
        assert len(chosen) == 2 + 4  # of the other 38, a tenth


@pytest.mark.parametrize(
    "path", ["src/codec/pdu.py", "suites/conformance/posix/conftest.py", "tests/mutants/posix_rules.py"]
)
def test_a_change_to_what_all_depend_on_selects_all(path):
    assert Selection([path], "a").select(MUTANTS, DEPENDS_ON) == set(MUTANTS)


@pytest.mark.parametrize(
    "path",
    [
        "src/other.py",
        "suites/conformance/nvme_tcp/test_rename.py",
        "suites/conformance/posix/requirements/posix.toml",
    ],
)
def test_a_change_elsewhere_selects_none(path):
    assert len(Selection([path], "a").select(MUTANTS, DEPENDS_ON)) == 4


def test_a_deleted_file_selects_all():
    gone = "suites/conformance/posix/test_gone.py"
    assert Selection([gone], "a").select(MUTANTS, DEPENDS_ON) == set(MUTANTS)


@pytest.mark.parametrize("since", ["", "0" * 40])
def test_an_unknown_commit_selects_all(since):
    assert selection.changed_files(since) is None
    assert Selection(None, "a").select(MUTANTS, DEPENDS_ON) == set(MUTANTS)


@pytest.fixture(scope="module")
def graph():
    return reach.import_graph()


@pytest.mark.parametrize("suite", SUITES)
def test_mutants_depend_on_each_codec_that_their_suite_imports(graph, suite):
    imported = graph.find_upstream_modules(f"storagetest.suites.conformance.{suite}", as_package=True)
    codecs = [name for name in imported if name.startswith("storagetest.wire.")]
    files = [
        f"src/{name.replace('.', '/')}" + ("/" if graph.find_children(name) else ".py") for name in codecs
    ]
    assert len(files) > 5
    assert [file for file in files if not file.startswith(SUITES[suite])] == []
