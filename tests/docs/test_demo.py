"""script/demo: each file and variant that it names exists, and its own cases are collected."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = (ROOT / "script" / "demo").read_text()
FILES = sorted(set(re.findall(r"(?:suites|examples)/[\w/]+\.py", SCRIPT)))
VARIANTS = sorted(set(re.findall(r"--st-target ([\w.-]+)", SCRIPT)))


def test_it_is_a_script():
    subprocess.run(["bash", "-n", str(ROOT / "script" / "demo")], check=True, timeout=60)
    assert len(FILES) >= 7
    assert len(VARIANTS) == 4


@pytest.mark.parametrize("name", FILES)
def test_each_file_exists(name):
    assert (ROOT / name).is_file()


def test_the_cases_are_collected_on_the_variants_of_the_labs_file():
    targets = [argument for variant in VARIANTS for argument in ("--st-target", variant)]
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    argv += ["--st-targets", "targets.yaml", *targets, "examples/demo"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for variant in VARIANTS:
        assert f"test_small_random_write[{variant}]" in done.stdout
        assert f"test_fails_on_purpose[{variant}]" in done.stdout
    (curve,) = re.findall(r'test_curves\.py::([^"]+)"', SCRIPT)
    assert curve in done.stdout
