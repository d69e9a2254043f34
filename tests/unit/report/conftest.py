"""Made-up records: real shapes, invented numbers."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for browser_kit: importlib mode leaves sys.path alone

from storagetest.measure.histogram import Histogram
from storagetest.measure.run import METRICS, Run, Sample
from storagetest.measure.stats import Interval
from storagetest.report.allure import reporter as allure
from storagetest.report.base import Record
from storagetest.report.jsonl import JsonlReporter
from storagetest.report.metric_values import parameter_text
from storagetest.verdict.base import Outcome, Threshold, Verdict

MIB = 1 << 20


def histogram(centre: float, rng: random.Random) -> Histogram:
    """A few thousand latencies around ``centre`` seconds."""
    return Histogram.of(centre * rng.lognormvariate(0, 0.4) for _ in range(5000))


def sample(seed: int, *, bandwidth: float = 200.0) -> Sample:
    """One repeat at about ``bandwidth`` MiB/s."""
    rng = random.Random(seed)
    rate = bandwidth * MIB * rng.uniform(0.97, 1.03)
    mean = 0.004 * rng.uniform(0.95, 1.05)
    return Sample(
        values={
            "bandwidth": rate,
            "iops": rate / 4096,
            "latency_mean": mean,
            "p50": mean * 0.9,
            "p95": mean * 2,
            "p99": mean * 3,
            "p99.9": mean * 5,
            "client_cpu": rng.uniform(0.2, 0.4),
        },
        seconds=10.0,
        ios=round(rate / 4096 * 10),
        latency=histogram(mean, rng),
        evidence={
            "argv": "fio --output-format=json+ job.fio",
            "fio.json": '{"fio version": "fio-3.33", "jobs": []}',
        },
    )


def verdict(outcome: Outcome, *, metric: str = "iops", bound: float = 20000.0) -> Verdict:
    """A gate on ``metric`` and what became of it."""
    threshold = Threshold(METRICS[metric], ">=", bound, f"{metric} >= {bound:g}", "targets.yaml:31:9")
    measured = f"{metric}: required >= 20k/s, measured 19,000/s"
    if outcome is Outcome.INVALID:
        return Verdict(outcome, threshold, None, f"{measured} (1 run): no verdict: it takes at least 3 runs")
    interval = Interval(19000.0, 18500.0, 19500.0, 0.99, 3)
    reason = f"{measured} (99 % interval 18,500..19,500/s, 3 runs): below the threshold"
    return Verdict(outcome, threshold, interval, reason)


def title(workload: str, asked: dict) -> str:
    """What a workload would call its case: words and sizes stand by themselves."""
    shown = {name: parameter_text(name, value) for name, value in asked.items()}
    words = [
        text if text != str(asked[name]) or isinstance(asked[name], str) else f"{name}={text}"
        for name, text in shown.items()
    ]
    return " ".join((workload, *words))


def build(
    *,
    protocol: str = "nfs",
    variant: str = "nfs-v4.2-nconnect4",
    workload: str = "sequential",
    parameters: dict | None = None,
    repeats: int = 3,
    outcome: Outcome | None = Outcome.PASS,
    **changes,
) -> Record:
    """A finished case; ``changes`` replace members of the record or of its run."""
    asked = {"direction": "read", "block_size": MIB} if parameters is None else parameters
    run = Run(
        case=f"suites/performance/test_{workload}.py::test_{workload}[{variant}]",
        workload=workload,
        target=variant.partition("-v")[0],
        variant=variant,
        protocol=protocol,
        client="client1",
        title=title(workload, asked),
        parameters=asked,
        negotiated={"vers": "4.2", "rsize": "1048576", "nconnect": "4"},
        samples=tuple(sample(seed) for seed in range(repeats)),
        started=1_700_000_000.25,
        profile="smoke",
        versions={"fio": "3.33", "kernel": "6.1.0-18-amd64"},
    )
    record = Record(run, (verdict(outcome),) if outcome else (), nodeid=run.case)
    return changed(record, **changes)


def changed(record: Record, **changes) -> Record:
    """The record with other members, or with a run of other members."""
    of_run = {name: changes.pop(name) for name in [*changes] if name in Run.__dataclass_fields__}
    return replace(record, **{"run": replace(record.run, **of_run), **changes})


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Record]:
    """Returns :func:`build`."""
    return build


@pytest.fixture(scope="session")
def change() -> Callable[..., Record]:
    """Returns :func:`changed`."""
    return changed


@pytest.fixture
def write_results(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that appends records to a results file and returns its path."""

    def write(*records: Record, name: str = "results.jsonl") -> Path:
        for record in records:
            JsonlReporter(tmp_path / name).on_record(record)
        return tmp_path / name

    return write


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "html: makes a real HTML report with npm's packages (wants the registry once)"
    )


@pytest.fixture(scope="session")
def sample_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Allure wrote in a pytest run of sample_suite.py, with its extras."""
    here = Path(__file__).parent
    place = tmp_path_factory.mktemp("sample")
    shutil.copyfile(here / "conftest.py", place / "conftest.py")
    shutil.copyfile(here / "sample_suite.py", place / "test_sample.py")
    argv = [sys.executable, "-m", "pytest", "-q", "--alluredir=results", "--rootdir=.", "-c", os.devnull]
    argv += ["-p", "no:cacheprovider", "-p", "no:storagetest"]
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=500, check=False)
    assert "12 failed, 31 passed, 1 skipped, 1 xfailed" in done.stdout, done.stdout + done.stderr
    versions = {"storagetest": "0.1.0", "client1": "Linux 6.1.0-18-amd64, fio 3.33"}
    allure.write_extras(place / "results", versions)
    return place / "results"
