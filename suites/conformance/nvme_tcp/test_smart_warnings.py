"""The SMART log: its warnings are those of its values, and no count falls by a reset (Base 5.2.12.1.3)."""

from __future__ import annotations

import time

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, LogPage, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue

from .test_feature_values import need_feature

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 5.2.12.1.3", builds_on=("NVA-LOG-SMART",)),
]

EVERY = 0xFFFFFFFF
SPARE_LOW, TOO_WARM = 1 << 0, 1 << 1
"""Bits of Critical Warning: the spare is under its threshold; a temperature is beyond one."""

COMPOSITE = slice(1, 3)
SPARE, SPARE_THRESHOLD = 3, 4
READS = 4
"""Reads of a page whose values may change between two fields (chosen)."""

BELOW = 10
"""Kelvins of a threshold under the composite temperature, which may fall a little (chosen)."""

WITHIN = 10.0
"""Seconds within which a controller may look at its temperature again (chosen)."""

COUNTS = {
    "Controller Busy Time": 96,
    "Power Cycles": 112,
    "Power On Hours": 128,
    "Unsafe Shutdowns": 144,
    "Media and Data Integrity Errors": 160,
    "Number of Error Information Log Entries": 176,
}
"""Offsets of counters of 16 bytes."""


def _page(session: ControllerSession) -> bytes:
    return session.log_page(LogPage.SMART, 512, nsid=EVERY)


@pytest.mark.case("NVA-SMART-SPARE", kills=("smart-spare-warning",))
def test_the_warning_of_the_spare_is_that_of_its_threshold(session: ControllerSession) -> None:
    """Bit 0 of Critical Warning is 1 if, and only if, Available Spare is under its threshold."""
    for _ in range(READS):
        page = _page(session)
        low = page[SPARE] < page[SPARE_THRESHOLD]
        if bool(page[0] & SPARE_LOW) == low:
            return
    pytest.fail(
        f"5.2.12.1.3: Critical Warning is {page[0]:#04x}; Available Spare is {page[SPARE]} percent, and its "
        f"threshold {page[SPARE_THRESHOLD]}"
    )


@pytest.mark.case("NVA-SMART-WARM", kills=("smart-never-warm",))
def test_a_temperature_over_its_threshold_is_a_warning(session: ControllerSession) -> None:
    """The over temperature threshold is set to less than the composite temperature.

    A controller may refuse the value, or keep none.
    """
    fid = Feature.TEMPERATURE_THRESHOLD
    need_feature(session, fid)
    warm = int.from_bytes(_page(session)[COMPOSITE], "little")
    if warm <= BELOW:
        pytest.skip(f"the composite temperature is {warm} K: it is not reported")
    first = session.admin.run(admin.get_features(fid)).cqe.dw0 & 0xFFFF
    try:
        done = session.admin.run(admin.set_features(fid, warm - BELOW))
        if not done.ok or session.admin.run(admin.get_features(fid)).cqe.dw0 & 0xFFFF != warm - BELOW:
            pytest.skip(f"the controller does not keep a threshold of {warm - BELOW} K")
        until = time.monotonic() + WITHIN
        while not (page := _page(session))[0] & TOO_WARM:
            now = int.from_bytes(page[COMPOSITE], "little")
            if now < warm - BELOW:
                pytest.skip(f"the composite temperature has fallen to {now} K")
            assert time.monotonic() < until, (
                f"5.2.12.1.3: bit 1 of Critical Warning ({page[0]:#04x}) is 0; the composite temperature is "
                f"{now} K, and the over temperature threshold {warm - BELOW} K"
            )
            time.sleep(0.1)
    finally:
        session.admin.run(admin.set_features(fid, first))


@pytest.mark.case("NVA-SMART-RESET-OTHERS", kills=("smart-reset-others",))
def test_a_controller_reset_keeps_the_other_counts(session: ControllerSession, queue: Queue) -> None:
    """One of them counts entries of the error log: a read that fails is one, if it is logged."""
    nsid = session.own_namespace()
    end = session.namespace(nsid)["nsze"]
    done = queue.run(io.read(nsid, end, 1), reads=session.namespace(nsid).block_size)
    assert not done.ok, f"NVM 3.1: a read past the end of {end} blocks: {status_name(done.status)}"
    before = _page(session)
    queue.close()
    session.disable()
    session.enable()
    after = _page(session)
    for name, at in COUNTS.items():
        was, now = (int.from_bytes(page[at : at + 16], "little") for page in (before, after))
        assert now >= was, f"5.2.12.1.3: {name} was {was}, and is {now} after a controller reset"
