"""The file system that mutants are made of: honest, and gone whatever ends the test."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fuse_mount
import fuse_protocol
import pytest
from fuse_mount import FuseError, is_mounted, mounted
from fuse_passthrough import PassThrough

NOT_HERE = fuse_mount.why_not()
pytestmark = pytest.mark.skipif(NOT_HERE is not None, reason=str(NOT_HERE))
HONEST = "fuse_passthrough:PassThrough"


class Hangs(PassThrough):
    """Answers nothing any more once ``hang`` is asked for."""

    def lookup(self, call, parent, name):
        if name == b"hang":
            time.sleep(600)
        return super().lookup(call, parent, name)


class Breaks(PassThrough):
    """Makes a mistake of its own."""

    def readlink(self, call, node):
        raise ZeroDivisionError("a mistake")


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    below, at = tmp_path / "below", tmp_path / "at"
    below.mkdir()
    at.mkdir()
    return below, at


def until(holds: Callable[[], bool], *, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False


def test_what_is_done_through_it_is_done_below_and_it_is_gone_afterwards(places: tuple[Path, Path]) -> None:
    below, at = places
    with mounted(HONEST, below, at):
        assert is_mounted(at)
        (at / "f").write_bytes(b"data")
        assert (below / "f").read_bytes() == b"data"
    assert not is_mounted(at)
    assert list(at.iterdir()) == []


def test_two_links_are_one_file_and_an_unlinked_open_file_still_exists(places: tuple[Path, Path]) -> None:
    below, at = places
    with mounted(HONEST, below, at), (at / "f").open("w+b", buffering=0) as file:
        os.link(at / "f", at / "g")
        assert (at / "f").samefile(at / "g")
        (at / "f").unlink()
        (at / "g").unlink()
        file.write(b"still")
        os.fchmod(file.fileno(), 0o640)
        found = os.fstat(file.fileno())
        assert (found.st_nlink, found.st_size, found.st_mode & 0o777) == (0, 5, 0o640)


def test_it_is_unmounted_when_the_body_raises(places: tuple[Path, Path]) -> None:
    with pytest.raises(KeyError), mounted(HONEST, *places):
        raise KeyError
    assert not is_mounted(places[1])


def test_it_is_unmounted_when_the_test_is_killed(places: tuple[Path, Path]) -> None:
    below, at = places
    script = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from fuse_mount import mounted
with mounted({HONEST!r}, Path({str(below)!r}), Path({str(at)!r})):
    print("up", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as test:
        assert test.stdout is not None
        assert test.stdout.readline() == b"up\n"
        assert is_mounted(at)
        test.send_signal(signal.SIGKILL)
        test.wait(timeout=20)
    assert until(lambda: not is_mounted(at)), "the mount outlives the test"


def test_the_mount_of_a_killed_server_goes_with_the_next(places: tuple[Path, Path], tmp_path: Path) -> None:
    below, at = places
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(FuseError, match="or its mount was lost"), mounted(HONEST, below, at):
        pid = next(pid for point, pid in fuse_mount._mounts() if point == at)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)  # its files are closed by then: a request sent before would be cut off instead
        with pytest.raises(OSError, match="endpoint is not connected"):
            (at / "f").stat()
        with mounted(HONEST, below, other):
            assert not is_mounted(at)


def test_who_waits_for_a_server_that_hangs_is_released(places: tuple[Path, Path]) -> None:
    below, at = places
    with mounted("test_fuse_mount:Hangs", below, at, deadline=5.0):
        waits = subprocess.Popen(["stat", at / "hang"], stderr=subprocess.PIPE, text=True)
        assert until(lambda: "stat" in Path(f"/proc/{waits.pid}/comm").read_text(encoding="ascii"))
        time.sleep(0.2)
    _, stdout = waits.communicate(timeout=20)
    assert waits.returncode == 1
    assert stdout
    assert not is_mounted(at)


@pytest.mark.parametrize("reason", [errno.ENODEV, errno.ECONNABORTED])
def test_an_unmount_ends_the_server_also_in_the_midst_of_a_read(
    monkeypatch: pytest.MonkeyPatch, reason: int, tmp_path: Path
) -> None:
    reads = []

    def refused(_device: int, _size: int) -> bytes:
        reads.append(reason)
        raise OSError(reason, os.strerror(reason))

    with (tmp_path / "device").open("w+b") as device, monkeypatch.context() as patch:
        patch.setattr(os, "read", refused)
        fuse_protocol.serve(device.fileno(), PassThrough(tmp_path), ready=lambda: pytest.fail("mounted"))
    assert reads == [reason]


def test_a_mistake_of_ours_is_an_error_and_not_a_mutant(places: tuple[Path, Path]) -> None:
    below, at = places
    (below / "link").symlink_to("x")
    with (
        pytest.raises(FuseError, match="ZeroDivisionError: a mistake"),
        mounted("test_fuse_mount:Breaks", below, at),
        pytest.raises(OSError, match="Input/output error"),
    ):
        (at / "link").readlink()


def test_what_cannot_be_made_is_not_mounted(places: tuple[Path, Path]) -> None:
    with (
        pytest.raises(FuseError, match="no attribute 'Nothing'"),
        mounted("fuse_passthrough:Nothing", *places),
    ):
        pytest.fail("it is mounted")
