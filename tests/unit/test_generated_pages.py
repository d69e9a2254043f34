"""The documentation's pages: generated ones, the navigation, and the architecture."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from storagetest import config
from storagetest.config.schema import schema_text
from storagetest.lab import roles
from storagetest.lab.paths import lab_dir
from storagetest.lab.status import LabSpec
from storagetest.lab.targets import targets_yaml
from storagetest.workloads._reference import page
from storagetest.workloads.base import workloads

ROOT = Path(__file__).parents[2]


def test_the_json_schema_is_the_models():
    published = (ROOT / "docs/reference/targets.schema.json").read_text()
    assert published == schema_text(), "run: storagetest schema > docs/reference/targets.schema.json"


def test_the_reference_of_the_workloads_is_theirs():
    published = (ROOT / "docs/reference/workloads.md").read_text()
    wanted = page(workloads.all())
    assert published == wanted, "run: storagetest workloads > docs/reference/workloads.md"


def test_the_reference_agrees_with_the_code():
    argv = [sys.executable, ROOT / "script/reference.py", "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


EXAMPLES = sorted(
    [*(ROOT / "examples/targets").glob("*.yaml"), ROOT / "examples/custom-workloads/targets.yaml"]
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_load(path: Path):
    assert config.load(path).variants


def test_the_targets_file_at_the_root_is_the_labs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert (ROOT / "targets.yaml").read_text() == default_targets(), (
        "the lab's targets have changed: run `storagetest lab up` and copy the targets.yaml that it writes"
    )


def default_targets() -> str:
    spec = LabSpec(2, "kernel", None)
    clients = ["client1", "client2"]
    targets = roles.load("kernel").targets
    return targets_yaml("default", spec.describe(), lab_dir("default"), clients, targets, {})


class _Loader(yaml.SafeLoader):
    """A safe loader that reads ``!!python/name:…``, by which mkdocs.yml names functions, as null."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, suffix, node: None)


def pages(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for entry in nav:
            yield from pages(entry)
    elif isinstance(nav, dict):
        for entry in nav.values():
            yield from pages(entry)


def test_every_page_is_listed_once():
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)["nav"]
    docs = ROOT / "docs"
    assert sorted(pages(nav)) == sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))


PACKAGE = ROOT / "src" / "storagetest"
TEXT = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
PATHS = sorted({path for path in re.findall(r"\b[\w/]+\.py\b", TEXT) if "NAME" not in path})
PACKAGES = re.findall(r"^\| `([\w/]+)/` \|", TEXT, re.MULTILINE)


@pytest.mark.parametrize("path", PATHS)
def test_each_module_on_the_page_exists(path: str):
    base = ROOT if path.startswith(("suites/", "tests/")) else PACKAGE
    assert (base / path).is_file(), f"docs/design.md: no file {path} in {base}. Correct the path."


def test_each_package_is_on_the_page():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"suites"}
    assert packages == {name for name in PACKAGES if "/" not in name}
    assert all((PACKAGE / name / "__init__.py").is_file() for name in PACKAGES)
