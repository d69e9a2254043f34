"""The target of a node id."""

from __future__ import annotations

import pytest

from storagetest.plugin.xdist_scheduler import target_of

VARIANTS = {"nfs-v4": "nfs", "nfs-v4-nconnect2": "nfs", "nfs": "plain", "nas-4KiB": "nas"}


@pytest.mark.parametrize(
    ("nodeid", "target"),
    [
        ("suites/test_a.py::test_x[nfs-v4-4KiB]", "nfs"),
        ("suites/test_a.py::test_x[4KiB-nfs-v4-nconnect2]", "nfs"),
        ("suites/test_a.py::test_x[nfs]", "plain"),
        ("suites/test_a.py::test_x[nas-4KiB-4KiB]", "nas"),
        ("suites/test_a.py::test_x[other]", None),
        ("suites/test_a.py::test_x", None),
        ("suites/nfs/test_a.py::test_x", None),
    ],
)
def test_target_of_finds_the_variant_among_the_parameters(nodeid: str, target: str | None) -> None:
    assert target_of(nodeid, VARIANTS) == target
