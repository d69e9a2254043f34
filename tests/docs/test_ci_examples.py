"""The ready pipelines: valid by their makers' schemas; their commands run, on a directory of this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from blocks import ROOT, Block, Shell

from storagetest import config

CI = ROOT / "examples" / "ci"
SCHEMAS = {"github-actions.yml": "vendor.github-workflows", "gitlab-ci.yml": "vendor.gitlab-ci"}


def github() -> list[str]:
    steps = yaml.safe_load((CI / "github-actions.yml").read_text())["jobs"]["gate"]["steps"]
    return [step["run"] for step in steps if "run" in step]


def gitlab() -> list[str]:
    job = yaml.safe_load((CI / "gitlab-ci.yml").read_text())["storage-gate"]
    return [*job["before_script"], *job["script"], *job["after_script"]]


def jenkins() -> list[str]:
    text = (CI / "Jenkinsfile").read_text()
    return [
        next(filter(None, found))
        for found in re.findall(r"""\bsh (?:'''(.*?)'''|'(.*?)'|"(.*?)")""", text, re.DOTALL)
    ]


@pytest.mark.parametrize("name", SCHEMAS)
def test_they_are_valid(name: str):
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[name], str(CI / name)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def gate(commands: list[str]) -> str:
    (found,) = (" ".join(one.replace("\\\n", " ").split()) for one in commands if "pytest " in one)
    return found.removesuffix(" -o junit_family=xunit1")


def test_all_three_run_the_same_gate():
    assert gate(github()) == gate(gitlab()) == gate(jenkins())


def test_the_brackets_of_the_jenkinsfile_close():
    """There is no Jenkins here to ask: at least its blocks are whole."""
    text = re.sub(
        r"'''.*?'''|'[^'\n]*'|\"[^\"\n]*\"|//[^\n]*", "", (CI / "Jenkinsfile").read_text(), flags=re.DOTALL
    )
    depth = 0
    for bracket in re.findall(r"[{}]", text):
        depth += 1 if bracket == "{" else -1
        assert depth >= 0
    assert depth == 0
    sections = re.findall(r"^ {4}(\w+)", text, re.MULTILINE)
    assert sections == ["agent", "triggers", "options", "environment", "stages", "post"]


def test_their_commands_run(tmp_path: Path):
    """Everything but the installation, and the report, which wants npm's registry."""
    text = (CI / "targets.yaml").read_text().replace("/var/tmp", str(tmp_path))
    short, found = re.subn(
        r"nightly: {.*}", "nightly: {size: 8MiB, ramp: 0, runtime: 100ms, max_repeats: 3}", text
    )
    assert found == 1
    (tmp_path / "targets.yaml").write_text(short)
    assert config.load(CI / "targets.yaml").variants
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed on this machine")
    shell = Shell(tmp_path)
    lines = [line for one in github() for line in one.splitlines()]
    commands = [line for line in lines if " install " not in line and " report allure " not in line]
    assert [one.split()[:3] for one in commands] == [
        ["pytest", "--pyargs", "storagetest.suites.performance"],
        ["storagetest", "report", "page"],
        ["storagetest", "clean"],
    ]
    saving = commands[0].replace("--st-baseline", "--st-save-baseline")
    # Whether this machine meets the example's gates is not the question, nor what else is attached on it.
    for command in (saving, *commands):
        shell.run(Block(CI / "github-actions.yml", 0, "sh", command, more="exit 0, 1"))
    for name in ("junit.xml", "results.jsonl", "allure-results", "comparison.html"):
        assert (tmp_path / name).exists()
