from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from storagetest.config.base import WorkloadOptions
from storagetest.errors import WorkloadError
from storagetest.hosts.local import LocalHost
from storagetest.measure.run import METRICS, Run, Sample
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.runner import CaseInfo, PrefillCache, run_case
from storagetest.verdict import Verdict, parse_threshold
from storagetest.workloads.base import LoadSize, Workload


class Scripted(Workload["Scripted.Options"]):
    """A load whose figures are given beforehand, so that the order of things can be watched."""

    name = "scripted"
    tools: ClassVar[Mapping[str, tuple[str, ...]]] = {"sh": ("echo", "sh 5"), "none": ("no-such-tool",)}

    class Options(WorkloadOptions):
        """Nothing to choose, but a name."""

        word: str = "x"

    def __init__(self, figures: list[float], *, fill_fails: bool = False) -> None:
        self.figures = figures
        self.fill_fails = fill_fails
        self.did: list[str] = []

    def dataset(self, options: Any, scale: LoadSize) -> str:
        return f"set-{scale.size}"

    def fill(self, attachment: Attachment, options: Any, scale: LoadSize) -> None:
        self.did.append("fill")
        if self.fill_fails:
            raise WorkloadError("no space")

    def measure(self, attachment: Attachment, options: Any, scale: LoadSize) -> Sample:
        self.did.append(f"measure {scale.repeat}")
        return Sample({"iops": self.figures[scale.repeat]}, scale.runtime, 1000)


@pytest.fixture
def attachment(tmp_path: Path) -> Iterator[Attachment]:
    with LocalHost("here") as client:
        yield Attachment(client, str(tmp_path), AttachmentKind.FILESYSTEM, 1 << 30, {"fstype": "ext4"})


@pytest.fixture
def case() -> CaseInfo:
    return CaseInfo("test_x", "scripted", "t", "t-v", "local", "here", "smoke")


@pytest.fixture
def measure(attachment: Attachment, case: CaseInfo) -> Callable[..., tuple[Run, tuple[Verdict, ...]]]:
    """Return a function that measures a load on ``attachment`` and judges it by gates, given as texts."""

    def run(
        load: Workload[Any],
        scale: LoadSize,
        *gates: str,
        attachment: Attachment = attachment,
        options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> tuple[Run, tuple[Verdict, ...]]:
        thresholds = [parse_threshold(text, METRICS) for text in gates]
        settings = {"repeats": 3, "max_repeats": 8, "fills": PrefillCache(), **more}
        read = load.Options.model_validate(options or {})
        return run_case(load, read, attachment, scale, gates=thresholds, case=case, **settings)

    return run


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted
