"""A pytest of its own for every test, with a targets file of local directories: real fio, no lab."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

TARGETS = """\
version: 1
clients:
  here: {{transport: local}}
targets:
  disk:
    protocol: local
    path: {disk}
    clients: [here]
  other:
    protocol: local
    path: {other}
    clients: [here]
profiles:
  tiny: {{size: 1MiB, ramp: 0, runtime: 200ms, repeats: 3, max_repeats: 3}}
{more}
"""

SUITE = """\
def test_writes(measure):
    run = measure("small-random-write", direct=False, engine="psync", queue_depth=1)
    assert run.samples[0].values["iops"] > 0
"""


@pytest.fixture
def line(pytester: pytest.Pytester, tmp_path: Path) -> Callable[..., pytest.RunResult]:
    """Return a function that writes targets.yaml and a suite and runs a pytest of its own on them."""

    def run(
        *arguments: str, more: str = "", suite: str = SUITE, targets: str | None = None
    ) -> pytest.RunResult:
        for name in ("disk", "other"):
            (tmp_path / name).mkdir(exist_ok=True)
        text = targets or TARGETS.format(disk=tmp_path / "disk", other=tmp_path / "other", more=more)
        pytester.path.joinpath("targets.yaml").write_text(text)
        pytester.makepyfile(test_suite=suite)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "--st-profile", "tiny", *arguments)

    return run


@pytest.fixture
def fio() -> None:
    """Ask for fio, which the package lists of script/setup name."""
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed on this machine")
