"""`storagetest targets`: variants, counts and durations of their cases. `storagetest completion`."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from storagetest import config, installed_suites
from storagetest.cli import main
from storagetest.commands.targets import Cases, span, table
from storagetest.deprecation import StoragetestDeprecationWarning

TARGETS = """\
version: 1
clients: {load1: {transport: local}}
targets:
  nas: {protocol: nfs, address: nas.example.net, export: /x, matrix: {version: ["3", "4.2"]}}
  disk: {protocol: local, path: /tmp}
profiles: {tiny: {size: 4MiB, ramp: 1s, runtime: 9s, repeats: 3, max_repeats: 6}}
comparisons:
  versions: {workload: small-random-write, metric: iops, gate: nas-v4.2 >= 0.9 x nas-v3}
"""
SUITE = """\
import pytest

def test_load(measure): ...

@pytest.mark.needs("shared")
def test_shared(attachment): ...

def test_pair(comparison): ...

def test_of_no_target(): ...
"""


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "targets.yaml").write_text(TARGETS)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "test_suite.py").write_text(SUITE)
    return tmp_path


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    # In a separate process: pytest within pytest would share its state.
    command = [sys.executable, "-m", "storagetest", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_the_cases_of_each_variant_are_counted_and_timed(workdir):
    process = run("targets", "--profile", "tiny")
    assert process.returncode == 0, process.stderr
    rows = [" ".join(line.split()) for line in process.stdout.splitlines()]
    assert rows[:4] == [
        "variant protocol clients measured others skipped at least at most",
        "nas-v3 nfs load1 1 1 0 30 s 60 s",
        "nas-v4.2 nfs load1 3 1 0 90 s 3 min",
        "disk local load1 1 0 1 30 s 60 s",
    ]
    assert rows[4].startswith("3 variants 5 2 1 ")
    assert "4MiB of data on each of 3 variants" in process.stdout


def test_the_error_of_a_suite_that_cannot_be_collected(workdir):
    (workdir / "suites" / "test_suite.py").write_text("import no_such_module")
    process = run("targets", "--cost")
    assert process.returncode == 1
    assert "pytest could not collect suites" in process.stderr
    assert "no_such_module" in process.stderr
    assert "Traceback" not in process.stderr.partition("\n")[0]


def test_a_missing_suite(workdir, capsys):
    assert main(["targets", "nowhere"]) == 1
    assert "no such suite: nowhere" in capsys.readouterr().err


def test_without_cases_the_table_has_the_capabilities(workdir, capsys):
    (workdir / "suites" / "test_suite.py").write_text("import no_such_module")  # is not read
    assert main(["targets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["nas-v3", "nfs", "load1"]
    assert "filesystem" in lines[1]


def test_the_former_option_is_accepted_with_a_warning(workdir):
    with pytest.warns(StoragetestDeprecationWarning, match="--no-cost"):
        assert main(["targets", "--no-cost"]) == 0


def test_no_suites_at_all(workdir, capsys, monkeypatch):
    shutil.rmtree(workdir / "suites")
    monkeypatch.setattr(installed_suites, "SUITES", workdir / "absent")
    assert main(["targets", "--cost"]) == 1
    assert "no suites: ./suites does not exist" in capsys.readouterr().err


def test_an_unknown_profile(workdir, capsys):
    assert main(["targets", "--profile", "tniy"]) == 4
    assert "did you mean 'tiny'?" in capsys.readouterr().err


def test_no_cases_take_no_time(workdir):
    loaded = config.load(workdir / "targets.yaml")
    lines = table(loaded, Cases(Counter(), Counter(), Counter()), loaded.profile("tiny"))
    assert lines[1].split() == ["nas-v3", "nfs", "load1", "0", "0", "0", "0", "s", "0", "s"]


def test_the_table_fits_the_width(workdir):
    targets = TARGETS.replace("  nas:", f"  {'n' * 70}:").replace("nas-v", f"{'n' * 70}-v")
    (workdir / "targets.yaml").write_text(targets)
    loaded = config.load(workdir / "targets.yaml")
    cases = Cases(Counter({"disk": 1000}), Counter(), Counter())
    for width in (100, 80, 76):
        lines = table(loaded, cases, loaded.profile("tiny"), width=width)
        assert max(map(len, lines[: 2 * len(loaded.variants) + 4])) <= width
        for variant in loaded.variants:  # a line for the id, which is not cut, and one for the rest
            cells = lines[lines.index(variant.id) + 1]
            assert cells.split()[:2] == [variant.protocol, ",".join(each.name for each in variant.clients)]
    wide = table(loaded, cases, loaded.profile("tiny"))
    assert [line.split()[0] for line in wide[1 : 1 + len(loaded.variants)]] == [v.id for v in loaded.variants]


def test_capabilities_continue_on_a_further_line(workdir):
    loaded = config.load(workdir / "targets.yaml")
    lines = table(loaded, None, loaded.profile("tiny"), width=40)
    assert lines[0] == "variant"
    assert max(map(len, lines)) <= 40
    words = table(loaded, None, loaded.profile("tiny"))
    assert " ".join(lines).split() == " ".join(words).split()


@pytest.mark.parametrize(("count", "text"), [(0, "0 variants"), (1, "1 variant"), (2, "2 variants")])
def test_one_variant_is_singular(workdir, count: int, text: str):
    loaded = config.load(workdir / "targets.yaml")
    loaded = replace(loaded, variants=loaded.variants[:count])
    cases = Cases(Counter({variant.id: 1 for variant in loaded.variants}), Counter(), Counter())
    *_, totals, _, _, not_included = table(loaded, cases, loaded.profile("tiny"))
    assert re.match(rf"{text}  ", totals)
    assert f" of data on each of {text} first." in not_included


def test_spans_are_readable():
    assert [span(seconds) for seconds in (0, 0.7, 35, 99, 100, 3600, 11100)] == [
        "0 s", "0.7 s", "35 s", "99 s", "2 min", "1 h 0 min", "3 h 5 min",
    ]  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "storagetest" in script
    assert "pytest" not in script
    if shutil.which(shell):
        process = subprocess.run(
            [shell, "-n"], check=False, input=script, text=True, capture_output=True, timeout=60
        )
        assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("storagetest ", {"init", "check", "targets", "completion", "lab"}),
        ("storagetest check --", {"--targets", "--client", "--no-attach"}),
        ("storagetest lab ", {"up", "down", "status"}),
        ("storagetest completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_completions_of_a_command_line(line, expected, tmp_path):
    # argcomplete: the program writes the completions to file descriptor 8; its script redirects it to stdout.
    script = 'exec 8>"$OUT" 9>/dev/null; exec "$0" -m storagetest'
    completions = tmp_path / "completions"
    env = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "0",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
        "OUT": str(completions),
    }
    subprocess.run(["bash", "-c", script, sys.executable], env=env, check=False, timeout=300)
    assert expected <= {word.strip() for word in completions.read_text().split("\n")}
