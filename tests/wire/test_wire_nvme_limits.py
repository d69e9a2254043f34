"""Transfers planned within the limits that a controller announces."""

from __future__ import annotations

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme.limits import UNLIMITED, Limits
from storagetest.wire.nvme.structures import Cap, ControllerData, NamespaceData, NvmCommandLimits
from storagetest.wire.nvme_tcp.harness import implementation


def controller(**fields: int | bytes) -> ControllerData:
    """Return Identify Controller with bytes at the named places."""
    raw = bytearray(4096)
    for name, value in fields.items():
        at = {"mdts": 77, "maxcmd": 514, "mn": 24, "fr": 64}[name]
        data = value if isinstance(value, bytes) else value.to_bytes(2 if name == "maxcmd" else 1, "little")
        raw[at : at + len(data)] = data
    return ControllerData(bytes(raw))


def namespace(*, shift: int = 9, mssrl: int = 0, mcl: int = 0, msrc: int = 0) -> NamespaceData:
    raw = bytearray(4096)
    raw[74:76], raw[76:80], raw[80] = mssrl.to_bytes(2, "little"), mcl.to_bytes(4, "little"), msrc
    raw[130] = shift
    return NamespaceData(bytes(raw))


def limits(
    mdts: int = 0, shift: int = 12, *, mqes: int = 127, maxcmd: int = 0, mpsmin: int = 0, **more: int
) -> Limits:
    commands = NvmCommandLimits(more.pop("vsl", 0), more.pop("wzsl", 0), more.pop("dmrl", 0))
    cap = Cap(mqes | mpsmin << 48)
    return Limits.of(cap, controller(mdts=mdts, maxcmd=maxcmd), namespace(shift=shift, **more), commands)


@pytest.mark.parametrize(
    ("mdts", "mpsmin", "shift", "blocks"),
    [
        (0, 0, 12, UNLIMITED),
        (5, 0, 12, 32),
        (5, 0, 9, 256),
        (1, 0, 12, 2),
        (1, 4, 12, 32),
        (30, 0, 9, UNLIMITED),
    ],
)
def test_mdts_is_a_power_of_two_of_the_least_pages(mdts: int, mpsmin: int, shift: int, blocks: int) -> None:
    assert limits(mdts, shift, mpsmin=mpsmin).transfer == blocks


def test_a_transfer_is_cut_to_the_limit_and_never_to_nothing() -> None:
    planned = limits(1)
    assert [planned.blocks_of(size) for size in (1, 4096, 4097, 1 << 20)] == [1, 1, 2, 2]
    assert planned.blocks_of(1 << 20, most=1) == 1


def test_pieces_cover_every_block_once() -> None:
    assert list(limits(1).pieces(10, 5)) == [(10, 2), (12, 2), (14, 1)]
    assert list(limits(1).pieces(10, 5, most=4)) == [(10, 4), (14, 1)]


@pytest.mark.parametrize(
    ("mssrl", "mcl", "msrc", "ranges"),
    [
        (64, 128, 3, [(4, 4), (0, 2)]),
        (64, 128, 0, [(4, 4)]),
        (1, 128, 3, [(4, 1), (0, 1)]),
        (64, 5, 3, [(4, 4), (0, 1)]),
        (0, 128, 3, []),
    ],
)
def test_a_copy_is_cut_to_msrc_mssrl_and_mcl(
    mssrl: int, mcl: int, msrc: int, ranges: list[tuple[int, int]]
) -> None:
    assert limits(mssrl=mssrl, mcl=mcl, msrc=msrc).copied([(4, 4), (0, 2)]) == ranges


def test_commands_at_once_are_limited_by_mqes_and_maxcmd() -> None:
    assert limits(mqes=127).outstanding == 127
    assert limits(mqes=1).outstanding == 1
    assert limits(mqes=127, maxcmd=8).outstanding == 8


def test_the_limits_of_commands_without_data() -> None:
    planned = limits(vsl=1, wzsl=2, dmrl=3)
    assert (planned.verify, planned.zeroes, planned.discard_ranges) == (2, 4, 3)
    assert NvmCommandLimits.decode(bytes([1, 2, 9, 3, 4]).ljust(4096, b"\0")) == NvmCommandLimits(1, 2, 3, 4)


def test_limits_that_are_cut_off_are_an_error() -> None:
    with pytest.raises(RemoteProtocolError):
        NvmCommandLimits.decode(bytes(512))


@pytest.mark.parametrize(
    ("model", "revision", "name"),
    [
        (b"SPDK bdev Controller", b"24.01.1", "spdk"),
        (b"Linux", b"6.1.0-56", "linux-nvmet"),
        (b"another", b"1", ""),
    ],
)
def test_implementations_are_recognised(model: bytes, revision: bytes, name: str) -> None:
    assert implementation(controller(mn=model.ljust(40), fr=revision.ljust(8)[:8])) == name
