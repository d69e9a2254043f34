"""Thin clones: the space that many clones of one image take, against their nominal size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storagetest.config.base import Size
from storagetest.errors import ClientLacks
from storagetest.measure.run import Better, Metric, Sample
from storagetest.measure.unit import Unit
from storagetest.protocols.base import Attachment
from storagetest.units import format_size
from storagetest.workloads._agent.base import AgentOptions, AgentWorkload, require_space
from storagetest.workloads._agent.result import AgentResult
from storagetest.workloads._agent.run import run_agent
from storagetest.workloads._fio.base import SLACK, SLOWEST_FILL
from storagetest.workloads._metrics import client_cpu, latencies, rate
from storagetest.workloads.base import LoadSize, register

_CHUNK = 1 << 16
_SLOWEST_CLONE = 1.0
"""Seconds that a clone may take (chosen)."""


def _sizes(*names: str, better: Better = Better.LOWER) -> dict[str, Metric]:
    return {name: Metric(name, Unit.BYTES, better) for name in names}


@register
class ThinClones(AgentWorkload["ThinClones.Options"]):
    """Thin clones of one image: the bytes that they allocate, against their nominal and their written bytes.

    `nominal` is the image's size times the number of clones; `written` the bytes that image and clones
    got. `allocated` is what the target counts before and after: by its control `allocated` on the server;
    without that by GET LBA STATUS on the disk below a file system, if it reports deallocated blocks; else
    by the used space of the file system (statfs). `used` is always the last of these, and `extents` the
    bytes that SEEK_DATA finds in all files. Other users of the target change the counts, so there should
    be none.
    """

    name = "thin-clones"
    main_phase = "clone"
    example: ClassVar[Mapping[str, Any]] = {"method": "sparse", "clones": 10}
    headline = ("allocated", "nominal", "written")
    source = "ioctl_ficlone(2), lseek(2), statvfs(3); GET LBA STATUS, SBC-3 5.7"
    metrics: ClassVar[Mapping[str, Metric]] = {
        **_sizes("nominal", better=Better.HIGHER),
        **_sizes("written", "allocated", "used", "extents"),
        **rate("clone_ops"),
        **latencies("clone"),
        **client_cpu,
    }

    class Options(AgentOptions):
        """Number and sizes of the clones."""

        method: Literal["reflink", "sparse"] = "reflink"
        """Clones that share the image's extents (FICLONE), or sparse files that hold only their own data."""

        clones: Annotated[int, Field(ge=1, le=1000)] = 40
        """Clones of the image."""

        image_size: Annotated[Size | None, Field(ge=_CHUNK)] = None
        """The image's nominal size, in place of the profile's size; a multiple of 64 KiB."""

        image_data: Annotated[Size | None, Field(ge=_CHUNK)] = None
        """Bytes that are written to the image; without it a tenth of its size."""

        clone_data: Annotated[Size | None, Field(ge=_CHUNK)] = None
        """Bytes that are written to each clone; without it a four-hundredth of the image's size."""

        @model_validator(mode="after")
        def _possible(self) -> Self:
            for name in ("image_size", "image_data", "clone_data"):
                size = getattr(self, name)
                if size is not None and size % _CHUNK:
                    raise ValueError(f"{name}: {format_size(size)} is not a multiple of 64KiB")
            return self

    def request(self, attachment: Attachment, options: ThinClones.Options, scale: LoadSize) -> dict[str, Any]:
        """Return the request of the clones."""
        image = options.image_size or max(_CHUNK, scale.size // _CHUNK * _CHUNK)
        data = min(image, options.image_data or _chunks(image // 10))
        clone_data = min(image, options.clone_data or _chunks(image // 400))
        require_space(attachment, data + options.clones * clone_data)
        return {
            "command": "loads.thin_clones",
            "step": "clone",
            "path": attachment.path,
            "image": image,
            "image_data": data,
            "clone_data": clone_data,
            "seconds": None,
            **options.model_dump(include={"method", "clones"}),
            "seed": options.seed + scale.repeat,
        }

    def timeout(self, request: Mapping[str, Any], scale: LoadSize) -> float:  # noqa: ARG002
        """Return the time to write and to read all data, and of a second for each clone."""
        data = request["image_data"] + request["clones"] * request["clone_data"]
        return float(request["clones"] * _SLOWEST_CLONE + 2 * data / SLOWEST_FILL)

    def measure(self, attachment: Attachment, options: ThinClones.Options, scale: LoadSize) -> Sample:
        """Make the clones and count what they take; a clone with other data fails: :class:`AssertionError`.

        Raises :class:`~storagetest.errors.ClientLacks` if the target refuses reflinks.
        """
        request = self.request(attachment, options, scale)
        self._step("begin", attachment, request, scale)
        try:
            before = attachment.allocated() if attachment.allocated is not None else None
            sample = super().measure(attachment, options, scale)
            if before is not None and attachment.allocated is not None:
                taken = attachment.allocated() - before
                sample = _with_allocated(sample, taken, "the control `allocated` on the server")
        finally:
            self._step("end", attachment, request, scale)
        differs = sample.evidence.get("differs")
        assert differs is None, (
            f"{attachment.client.name}: clones have other data than they should: {differs}"
        )
        return sample

    def _step(self, step: str, attachment: Attachment, request: Mapping[str, Any], scale: LoadSize) -> None:
        deadline = SLACK + self.timeout(request, scale)
        run_agent(attachment.client, {**request, "step": step}, deadline=deadline)

    def values(self, result: AgentResult, options: ThinClones.Options) -> dict[str, float]:  # noqa: ARG002
        """Return sizes in bytes, and clones per second."""
        extra = result.extra
        if "refused" in extra:
            raise ClientLacks(f"the target has no reflinks ({extra['refused']})")
        return {
            "nominal": float(extra["nominal"]),
            "written": float(extra["written"]),
            "extents": float(extra["extents"]),
            "used": float(max(0, _grown(extra["used"]))),
            "allocated": float(max(0, _grown(extra.get("mapped", extra["used"])))),
            "clone_ops": result.phases["clone"].rate("clone"),
        }

    def invalid(self, result: AgentResult, options: ThinClones.Options) -> tuple[str, ...]:  # noqa: ARG002
        """Space that others freed meanwhile makes the count invalid."""
        freed = -_grown(result.extra["used"])
        if freed <= 0:
            return ()
        return (
            f"{freed} bytes less are in use than before: another user of the target freed them meanwhile",
        )

    def evidence(self, result: AgentResult) -> dict[str, str]:
        """Return how the allocated bytes were counted, and the counts."""
        how = "GET LBA STATUS" if "mapped" in result.extra else "statfs"
        return {"allocated by": how, **super().evidence(result)}


def _with_allocated(sample: Sample, taken: int, how: str) -> Sample:
    """Return the sample with the bytes that the server counts."""
    wrong = (f"the server counts {-taken} bytes less than before",) if taken < 0 else ()
    return replace(
        sample,
        values={**sample.values, "allocated": float(max(0, taken))},
        evidence={**sample.evidence, "allocated by": how},
        invalid=(*sample.invalid, *wrong),
    )


def _grown(counts: tuple[int, int] | list[int]) -> int:
    return counts[1] - counts[0]


def _chunks(size: int) -> int:
    """Return ``size`` rounded up to whole chunks."""
    return -(-size // _CHUNK) * _CHUNK
