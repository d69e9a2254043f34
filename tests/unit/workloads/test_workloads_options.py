"""Options of the workloads: what each refuses and why, and how a result shows the others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from storagetest.workloads.base import workloads
from storagetest.workloads.metadata import OPERATIONS

REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "bonnie": [
        ({"chunk_size": 10_000}, "is not a power of two"),
        ({"chunk_size": "2MiB"}, "less than or equal to 1048576"),
        ({"char_io": "stdio"}, "buffered"),
        ({"seekers": 0}, "greater than or equal to 1"),
    ],
    "boot-storm": [
        ({"vms": 0}, "greater than or equal to 1"),
        ({"think": "11s"}, "less than or equal to 10"),
        ({"clone_size": 1_500_000}, "is not a multiple of 1MiB"),
        ({"interval": 0}, "greater than or equal to 0.01"),
    ],
    "copy": [
        ({"kind": "medium"}, "large"),
        ({"depth": 8, "width": 100}, "at most 10000 directories"),
        ({"block_size": 100}, "greater than or equal to 512"),
        ({"method": "scp"}, "client"),
    ],
    "database": [
        ({"page_size": 1000}, "512"),
        ({"page_workers": 0}, "greater"),
        ({"read_percent": 101}, "less than"),
    ],
    "metadata": [
        ({"operations": ["chown"]}, "operations"),
        ({"operations": []}, "at least 1"),
        ({"processes": 0}, "greater than or equal to 1"),
        ({"files": 2}, "too few for 4 processes"),
        ({"files": 100, "files_per_directory": 10}, "give one of them"),
        ({"depth": 10, "width": 10}, r"width \*\* depth is 10000000000: at most"),
        ({"file_size": "2MiB"}, "less than or equal to 1048576"),
    ],
    "open-loop": [
        ({"rate": 0}, "greater than 0"),
        ({"process": "waves"}, "poisson"),
        ({"block_size": 1000}, "a multiple of 512"),
        ({"workers": 0}, "greater than or equal to 1"),
    ],
    "postmark": [
        ({"low": 600, "high": 500}, "low must not be the larger"),
        ({"read_bias": -1, "create_bias": -1}, "nothing is left to do"),
        ({"read_bias": 11}, "less than or equal to 10"),
        ({"whole": True}, "set transactions too"),
        ({"files": 2, "processes": 4}, "too few for 4 processes"),
        ({"high": "2MiB"}, "less than or equal to 1048576"),
    ],
    "streaming": [
        ({"frame_size": 1000}, "4096"),
        ({"frames_per_second": 0}, "greater than 0"),
        ({"streams": 0}, "greater than or equal to 1"),
        ({"deadline": 0}, "greater than 0"),
    ],
    "multi-user": [
        ({"levels": [4, 1]}, "4, 1 do not ascend"),
        ({"levels": [2, 2]}, "do not ascend"),
        ({"levels": [3]}, "3"),
        ({"levels": []}, "at least 1"),
        ({"read_percent": 101}, "less than or equal to 100"),
    ],
    "noisy-neighbour": [({"neighbours": 1}, "greater than or equal to 2")],
    "sequential": [({"direction": "both"}, "read")],
    "small-random-read": [
        ({"cache": "cold"}, "direct: true bypasses"),
        ({"cache": "hot", "direct": False}, "cold"),
    ],
    "small-random-write": [
        ({"direct": False}, "completion latency is wrong"),
        ({"engine": "psync"}, "psync has one I/O in flight a job, not 8"),
        ({"block_size": 1000}, "is not a multiple of 512"),
        ({"block_size": 0}, "is not a multiple of 512"),
        ({"block_size": "4K"}, "4KiB"),
        ({"queue_depth": 0}, "greater than or equal to 1"),
        ({"jobs": 0}, "greater than or equal to 1"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"engine": "sync"}, "libaio"),
        ({"engine": "mmap", "queue_depth": 1}, "uses the page cache"),
        ({"engine": "mmap", "direct": False}, "mmap has one I/O in flight a job, not 8"),
    ],
}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [(name, *row) for name, rows in REFUSED.items() for row in rows],
    ids=lambda value: str(value) if isinstance(value, str | dict) else None,
)
def test_options_that_make_no_sense_are_refused(name, options, message):
    with pytest.raises(ValidationError, match=message):
        workloads.get(name).Options.model_validate(options)


@pytest.mark.parametrize(
    ("name", "options", "shown"),
    [
        ("bonnie", {}, {"chunk_size": "8KiB"}),
        ("boot-storm", {}, {"clone_size": "1MiB"}),
        ("copy", {}, {"block_size": "1MiB"}),
        ("metadata", {"file_size": 4096}, {"file_size": "4KiB"}),
        ("metadata", {}, {"operations": ",".join(OPERATIONS)}),
        ("postmark", {}, {"write_block": "512B"}),
    ],
)
def test_the_result_shows_sizes_with_units_and_lists_with_commas(name, options, shown):
    workload = workloads.get(name)
    assert workload().parameters(workload.Options.model_validate(options)).items() >= shown.items()


def test_the_result_shows_a_loads_own_options_first():
    workload = workloads.get("small-random-write")
    assert list(workload().parameters(workload.Options()).items()) == [
        ("block_size", "4KiB"), ("queue_depth", 8), ("jobs", 1), ("direct", True), ("engine", "libaio"),
        ("sync", "none"), ("seed", 1),
    ]  # fmt: skip
