"""Second forms of commands, and second pages of lists: what another form has a case for (SPC-4, SBC-3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult

from .test_scsi_edges import BITS, CACHING, CONTROL, current_page, selectable_page
from .test_scsi_mode_masks import CHANGEABLE
from .test_scsi_seldom import run

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 MODE SELECT", level="MUST", builds_on=("SCS-MSEL-01",)),
]

D_SENSE, BLOCKS = 0x04, 4


def listed_as(command: c.CommandFormat, *pages: bytes) -> bytes:
    """Return the parameter list of a form of MODE SELECT."""
    return bytes(4 if command is c.MODE_SELECT_6 else 8) + b"".join(page[4:] for page in pages)


def select(unit: LogicalUnit, command: c.CommandFormat, *pages: bytes) -> ScsiResult:
    """Send MODE SELECT of pages, each as :func:`current_page` returns it; skip if there is no such form."""
    data = listed_as(command, *pages)
    return offered(unit.run(command, data=data, pf=1, allocation=len(data)))


def flipped(unit: LogicalUnit, page: int) -> tuple[bytes, bytes]:
    """Return a page as it is, and with one bit changed that is changeable; skip if there is none."""
    before, mask = selectable_page(unit, page), current_page(unit, page, control=CHANGEABLE)
    for at, bit in ((4 + byte, bit) for byte, some in BITS[page] for bit in some):
        if at < min(len(mask), len(before)) and mask[at] & bit:
            return before, before[:at] + bytes((before[at] ^ bit,)) + before[at + 1 :]
    pytest.skip(f"no bit of page {page:02x}h that is tested is changeable: {mask.hex()}")


def set_back(unit: LogicalUnit, page: int, before: bytes, config: pytest.Config) -> None:
    """Leave a mode page as it was; end the run if that cannot be done."""
    if current_page(unit, page) == before:
        return
    for command in FORMS.values():
        data = listed_as(command, before)
        unit.run(command, data=data, pf=1, allocation=len(data))
    if current_page(unit, page) != before:
        stop_run(config, f"mode page {page:02x}h was {before[4:].hex()}: set it at the target")


@pytest.fixture
def flips(unit, scratch, pytestconfig) -> Iterator[tuple[tuple[bytes, bytes], tuple[bytes, bytes]]]:
    """Yield the Caching and the Control mode page, each as it is and changed; leave them as they were."""
    assert scratch.count
    caching, control = flipped(unit, CACHING), flipped(unit, CONTROL)
    yield caching, control
    for page, (before, _) in ((CACHING, caching), (CONTROL, control)):
        set_back(unit, page, before, pytestconfig)


FORMS = {"6": c.MODE_SELECT_6, "10": c.MODE_SELECT_10}


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"SCS-MSEL-BOTH-{form}", kills=(f"mode-select-first-{form}",)))
    for form in FORMS
])  # fmt: skip
def test_each_page_of_a_list_is_set(unit, flips, form):
    """In both orders: to the changed values, and back."""
    (caching, caching_new), (control, control_new) = flips
    for pages in ((caching_new, control_new), (control, caching)):
        answer = select(unit, FORMS[form], *pages)
        assert answer.good, f"{answer}: both pages are changeable"
        for page, code in zip(pages, (page[4] & 0x3F for page in pages), strict=True):
            found = current_page(unit, code)
            assert found == page, (
                f"{answer}: page {code:02x}h is {found[4:].hex()}; the list had {page[4:].hex()}, as page "
                f"{pages.index(page) + 1} of 2"
            )


@pytest.mark.parametrize("form", [
    pytest.param(form, marks=pytest.mark.case(f"SCS-MSEL-DEFAULT-{form}", kills=("mode-default-current",)))
    for form in FORMS
])  # fmt: skip
@pytest.mark.case(section="SPC-4 MODE SENSE, PC")
def test_default_and_changeable_values_stay_when_current_values_change(unit, flips, form):
    (_, caching), (_, control) = flips
    before = {
        (page, pc): current_page(unit, page, control=pc) for page in (CACHING, CONTROL) for pc in (1, 2)
    }
    for page, code in ((caching, CACHING), (control, CONTROL)):
        answer = select(unit, FORMS[form], page)
        assert answer.good, answer
        for (other, pc), values in before.items():
            found = current_page(unit, other, control=pc)
            assert found == values, (
                f"{answer} of page {code:02x}h: page {other:02x}h with PC {pc} is {found[4:].hex()}; it was "
                f"{values[4:].hex()}"
            )


@pytest.mark.case(
    "SCS-DSENSE-MISCOMPARE",
    section="SPC-4 sense data, information descriptor; SBC-3 COMPARE AND WRITE",
    kills=("d-sense-miscompare",),
    builds_on=("SCS-CAW-02",),
)
def test_the_offset_of_a_miscompare_is_there_in_both_formats(unit, scratch, pytestconfig):
    """INFORMATION is the offset of the first byte that differs, in fixed and in descriptor format."""
    before, mask = selectable_page(unit, CONTROL), current_page(unit, CONTROL, control=CHANGEABLE)
    if len(mask) < 7 or not mask[6] & D_SENSE:
        pytest.skip(f"D_SENSE is not changeable: {mask.hex()}")
    data = scratch.pattern(1, seed=1420)
    assert unit.write(scratch.lba, data).good
    try:
        for flags in (before[6] | D_SENSE, before[6] & ~D_SENSE):
            answer = select(unit, c.MODE_SELECT_6, before[:6] + bytes((flags,)) + before[7:])
            assert answer.good, answer
            for at in (0, 1, 255, scratch.block_size - 1):
                other = data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]
                answer = offered(unit.compare_and_write(scratch.lba, other, data))
                assert answer.check(SenseKey.MISCOMPARE), f"{answer}: byte {at} differs"
                assert answer.sense is not None
                assert answer.sense.information == at, (
                    f"{answer}: INFORMATION is {answer.sense.information}, D_SENSE is "
                    f"{bool(flags & D_SENSE):d}; byte {at} is the first that differs"
                )
    finally:
        set_back(unit, CONTROL, before, pytestconfig)


@pytest.mark.parametrize("zeroes", [
    pytest.param(True, marks=pytest.mark.case("SCS-SAME-UNMAP-ZEROES-10")),
    pytest.param(False, marks=pytest.mark.case("SCS-SAME-UNMAP-DATA-10")),
])  # fmt: skip
@pytest.mark.case(
    section="SBC-3 WRITE SAME(10), UNMAP", kills=("same10-unmap-kept",), builds_on=("SCS-SAME-01",)
)
def test_write_same_10_with_unmap_is_read_as_what_it_wrote(unit, facts, scratch, zeroes):
    """As WRITE SAME(16): if unmapped blocks read as zeroes, the range reads as the block that was sent."""
    if not facts.provisioning or not facts.provisioning.reads_zero:
        pytest.skip("unmapped blocks do not read as zeroes (LBPRZ of page B2h)")
    old, size = scratch.pattern(BLOCKS + 2, seed=1430), scratch.block_size
    assert unit.write(scratch.lba, old).good
    block = bytes(size) if zeroes else scratch.pattern(1, seed=1431)
    stated = facts.provisioning.write_same10_unmap
    answer = run(unit, c.WRITE_SAME_10, block, stated=stated, lba=scratch.lba + 1, blocks=BLOCKS, unmap=1)
    if not stated and answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not stated (LBPWS10), and not supported: {answer}")
    assert answer.good, answer
    wanted = old[:size] + BLOCKS * block + old[-size:]
    assert unit.read(scratch.lba, BLOCKS + 2).data == wanted, f"{answer}: not the block, or other blocks"


@pytest.mark.case(
    "SCS-SAME-NDOB-UNMAP", section="SBC-3 WRITE SAME(16), NDOB", kills=("ndob-unmap-kept",),
    builds_on=("SCS-SAME-NDOB",),
)  # fmt: skip
def test_write_same_without_data_and_with_unmap_leaves_zeroes(unit, facts, scratch):
    """NDOB is a block of zeroes, which a range that is unmapped reads as, too."""
    if not facts.provisioning or not facts.provisioning.reads_zero:
        pytest.skip("unmapped blocks do not read as zeroes (LBPRZ of page B2h)")
    old, size = scratch.pattern(BLOCKS + 2, seed=1440), scratch.block_size
    assert unit.write(scratch.lba, old).good
    answer = run(unit, c.WRITE_SAME_16, b"", lba=scratch.lba + 1, blocks=BLOCKS, ndob=1, unmap=1)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not supported: {answer}")
    assert answer.good, answer
    found = unit.read(scratch.lba, BLOCKS + 2).data
    assert found == old[:size] + bytes(BLOCKS * size) + old[-size:], f"{answer}: not zeroes, or other blocks"
