"""The output of lfs as the cases of layouts read it, and its ioctls' structures."""

import fcntl
import os
import struct
from pathlib import Path

import pytest

from storagetest.agent.testlib import CannotRun, lfs

PLAIN = """\
lmm_stripe_count:  2
lmm_stripe_size:   1048576
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 1
lmm_pool:          flash
lmm_objects:
      - l_ost_idx: 1
        l_fid:     0x100010000:0x2:0x0
      - l_ost_idx: 0
        l_fid:     0x100000000:0x2:0x0
"""
COMPOSITE = """\
  lcm_layout_gen:    3
  lcm_mirror_count:  1
  lcm_entry_count:   2
  component0:
    lcme_id:             1
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   65536
    sub_layout:
      lmm_stripe_count:  0
      lmm_stripe_size:   65536
      lmm_pattern:       mdt
      lmm_stripe_offset: 0
  component1:
    lcme_id:             2
    lcme_flags:          0
    lcme_extent.e_start: 65536
    lcme_extent.e_end:   EOF
    sub_layout:
      lmm_stripe_count:  -1
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_stripe_offset: -1
"""
LISTED = """\
lcm_layout_gen:    3
lcm_mirror_count:  1
lcm_entry_count:   2
components:
  - lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   65536
    sub_layout:
      lmm_stripe_count:  1
      lmm_stripe_size:   65536
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: 1
      lmm_objects:
      - l_ost_idx: 1
        l_fid:     0x280000400:0xa3:0x0
  - lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 65536
    lcme_extent.e_end:   EOF
    sub_layout:
      lmm_stripe_count:  -1
      lmm_stripe_size:   4194304
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1
"""
"""Of Lustre 2.17.57."""


def test_plain_layout() -> None:
    (part,) = lfs.parse_parts(PLAIN)
    assert (part.count, part.size, part.offset, part.pool) == (2, 1 << 20, 1, "flash")
    assert (part.start, part.end, part.osts, part.has_objects) == (0, None, [1, 0], True)


def test_composite_layout() -> None:
    first, second = lfs.parse_parts(COMPOSITE)
    assert (first.id, first.start, first.end, first.pattern) == (1, 0, 65536, "mdt")
    assert (second.id, second.start, second.end, second.count) == (2, 65536, None, -1)
    assert (first.has_objects, second.has_objects) == (True, False)


def test_components_of_a_list() -> None:
    first, second = lfs.parse_parts(LISTED)
    assert (first.id, first.start, first.end, first.osts) == (1, 0, 65536, [1])
    assert (second.id, second.start, second.end, second.count) == (2, 65536, None, -1)
    assert (first.has_objects, second.has_objects) == (True, False)


def test_inactive_osts_are_not_listed() -> None:
    text = "OBDS:\n0: l-OST0000_UUID ACTIVE\n1: l-OST0001_UUID INACTIVE\n5: l-OST0005_UUID ACTIVE\n"
    assert lfs.parse_osts(text) == [0, 5]


def test_osts_of_a_pool() -> None:
    assert lfs.parse_pool("Pool: l.flash\nl-OST0000_UUID\nl-OST001f_UUID\n") == [0, 31]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An lfs that does what its first argument is, as a script."""
    path = tmp_path / "lfs"
    path.write_text('#!/bin/sh\neval "$1"\n')
    path.chmod(0o755)
    monkeypatch.setattr(lfs, "PATH", f"{tmp_path}:/usr/bin:/bin")
    return path


@pytest.mark.usefixtures("program")
def test_a_command_that_fails_fails_the_case() -> None:
    assert lfs.lfs("echo done") == "done\n"
    with pytest.raises(AssertionError, match=r"exited 2: no such pool"):
        lfs.lfs("echo no such pool >&2; exit 2")


@pytest.mark.usefixtures("program")
def test_a_refusal_has_a_status_and_a_message() -> None:
    assert lfs.refused("echo no >&2; exit 1").status == 1
    with pytest.raises(AssertionError, match="has to be refused"):
        lfs.refused("echo no >&2")
    with pytest.raises(AssertionError, match="has no message"):
        lfs.refused("exit 1")


@pytest.mark.usefixtures("program")
def test_only_what_is_not_supported_is_skipped() -> None:
    with pytest.raises(CannotRun, match="no migration"):
        lfs.optional_lfs("migration", "echo 'Operation not supported' >&2; exit 95")
    with pytest.raises(AssertionError, match="Input/output error"):
        lfs.optional_lfs("migration", "echo 'Input/output error' >&2; exit 5")


def test_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    def ioctl(_descriptor: int, request: int, buffer: bytearray, _mutate: bool) -> int:
        assert request == 0xC020660B
        assert struct.unpack_from("=QQIIII", buffer) == (0, (1 << 64) - 1, lfs.FIEMAP_SYNC, 0, 4, 0)
        struct.pack_into("=I", buffer, 20, 2)
        struct.pack_into("=QQQQQIIII", buffer, 32, 0, 4096, 65536, 0, 0, 0, 3, 0, 0)
        struct.pack_into("=QQQQQIIII", buffer, 88, 65536, 8192, 100, 0, 0, 1, 5, 0, 0)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    mapped, extents = lfs.fiemap(0, most=4)
    assert mapped == 2
    assert [(one.start, one.length, one.flags, one.device) for one in extents] == [
        (0, 65536, 0, 3),
        (65536, 100, 1, 5),
    ]


def test_extents_of_unknown_place_are_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    def ioctl(_descriptor: int, _request: int, buffer: bytearray, _mutate: bool) -> int:
        struct.pack_into("=I", buffer, 20, 1)
        struct.pack_into("=QQQQQIIII", buffer, 32, 0, 0, 65536, 0, 0, 0x80000003, 0, 0, 0)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    with pytest.raises(CannotRun, match="does not know where the data of this file are"):
        lfs.fiemap(0)


def test_group_locks_are_refused_where_there_are_none(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "f", os.O_CREAT | os.O_RDWR)
    for call in (lfs.group_lock, lfs.group_unlock):
        with pytest.raises(OSError, match="Inappropriate ioctl"):
            call(descriptor, 1)
    os.close(descriptor)
