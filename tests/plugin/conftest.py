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


# A workload whose figures are read off a file: `<variant's directory>.dial`.
DIAL = """\
from pathlib import Path
from typing import Any, ClassVar

from storagetest.config.base import WorkloadOptions
from storagetest.measure.run import Sample
from storagetest.workloads.base import Workload, register

SPREAD = [1.0, 0.99, 1.01, 1.005, 0.995, 1.002, 0.992]

@register
class Dial(Workload["Dial.Options"]):
    "Measures what a file says."
    name = "dial"
    example: ClassVar[dict[str, Any]] = {}

    class Options(WorkloadOptions):
        "How many I/Os are counted."
        ios: int = 100000

    def measure(self, attachment, options, scale):
        directory = Path(attachment.path).parent
        with (directory.parent / "order").open("a") as log:
            log.write(directory.name + " ")
        figure, noise = directory.with_suffix(".dial").read_text().split()
        iops = float(figure) * SPREAD[scale.repeat % len(SPREAD)] * (1 + float(noise) * (-1) ** scale.repeat)
        return Sample({"iops": iops, "p99": 100 / iops}, scale.runtime, options.ios)
"""

DIAL_SUITE = """\
def test_dial(measure):
    measure("dial")
"""

DIAL_PROFILE = "profiles: {tiny: {size: 1MiB, ramp: 0, runtime: 10ms, repeats: 3, max_repeats: 10}}\n"


@pytest.fixture
def dial(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Return a function that runs a pytest on two targets whose figures are given."""

    def run(
        *arguments: str,
        suite: str = DIAL_SUITE,
        more: str = "",
        disk: float = 1000,
        other: float = 1000,
        noise: float = 0,
    ) -> pytest.RunResult:
        for name, figure in (("disk", disk), ("other", other)):
            (pytester.path / name).mkdir(exist_ok=True)
            (pytester.path / f"{name}.dial").write_text(f"{figure} {noise if name == 'disk' else 0}")
        text = TARGETS.format(disk=pytester.path / "disk", other=pytester.path / "other", more=more)
        head, _, _ = text.partition("profiles:")
        pytester.path.joinpath("targets.yaml").write_text(head + DIAL_PROFILE + more)
        pytester.path.joinpath("dial_workload.py").write_text(DIAL)
        pytester.makepyfile(test_suite=suite)
        pytester.syspathinsert()
        return pytester.runpytest_subprocess(
            "-p", "dial_workload", "-p", "no:cacheprovider", "--st-profile", "tiny", *arguments
        )

    return run
