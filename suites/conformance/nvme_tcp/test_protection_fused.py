"""A fused Write of a namespace that is write protected (Base 5.2.26.1.35, 3.4.2)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme.codes import StatusCode
from storagetest.wire.nvme_tcp import Queue
from storagetest.wire.nvme_tcp.harness import Scratch, block_data, read_blocks, refused, write_blocks

from .test_edges_fused import first, fusing, run_both, second
from .test_write_protection import SECTION, Protection, protection

__all__ = ["fusing", "protection"]  # the fixtures

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section=SECTION, builds_on=("NVB-FUSED-EQUAL",)),
]


@pytest.mark.case("NVB-FUSED-PROTECTED", kills=("protected-fused",))
def test_a_fused_write_of_a_protected_namespace_is_refused(
    fusing: Queue,
    scratch: Scratch,
    protection: Protection,
) -> None:
    """Twice, so that the first refusal lifts nothing. The Compare may succeed."""
    before = write_blocks(fusing, scratch, 1, 1441)
    protection.protect()
    for _ in range(2):
        data = (before, block_data(scratch.block_size, 1442))
        _, write = run_both(fusing, (first(scratch), second(scratch)), data)
        assert read_blocks(fusing, scratch, 1) == before, (
            "5.2.26.1.35: a fused Write has changed a block of a namespace that is write protected"
        )
        assert not write.ok, "5.2.26.1.35: the namespace is write protected, and a fused Write succeeds"
        refused(write, StatusCode.NAMESPACE_WRITE_PROTECTED, StatusCode.ABORTED_FAILED_FUSED)
