"""Writes that move all that was expected of them, on each way that their data can take."""

from __future__ import annotations

import pytest

from storagetest.wire.scsi.cdb import WRITE_16, cdb

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST", section="RFC 7143 11.4.5")]

FIRST, BURST = 2, 4
"""Blocks of FirstBurstLength and of MaxBurstLength (chosen)."""

PATHS = {
    "IMMEDIATE": {"InitialR2T": "Yes", "ImmediateData": "Yes"},
    "SOLICITED": {"InitialR2T": "Yes", "ImmediateData": "No"},
    "UNSOLICITED": {"InitialR2T": "No", "ImmediateData": "No"},
    "MIXED": {"InitialR2T": "No", "ImmediateData": "Yes"},
}
"""What a login offers for each way that the data of a write can take (4.2.5.2)."""


@pytest.mark.parametrize("path", [
    pytest.param(name, marks=pytest.mark.case(
        f"ISC-WHOLE-{name}", kills=("residual-of-large-writes",), builds_on=("ISC-DATAOUT-08",)))
    for name in PATHS
])  # fmt: skip
def test_a_write_of_all_that_was_expected_has_no_residual(connections, scratch, path):
    """Of one block, up to each of the limits and over it, and of several bursts."""
    size = scratch.block_size
    session = connections.prepared(
        scratch, FirstBurstLength=str(FIRST * size), MaxBurstLength=str(BURST * size), **PATHS[path]
    )
    for blocks in (1, FIRST, FIRST + 1, BURST, BURST + 1, FIRST + BURST + 1, 3 * BURST):
        data = scratch.pattern(blocks, seed=1800 + blocks)
        done = session.command(cdb(WRITE_16, lba=scratch.lba, blocks=blocks), data=data)
        found = done.status, done.overflow, done.underflow, done.residual
        assert found == (0, False, False, 0), (
            f"a write of {blocks} blocks of {size} bytes, FirstBurstLength {session.parameters.first_burst} "
            f"and MaxBurstLength {session.parameters.max_burst}: status, O, U and residual are {found}"
        )
        assert scratch.read_back(session, blocks) == data
