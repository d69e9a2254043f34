"""Loop devices, which stand in for a target's devices."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_loop_devices = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/loop-control").exists(), reason="needs root and loop devices"
)


def make_image(path: Path, size: int) -> Path:
    """Make a sparse file of ``size`` bytes."""
    path.touch()
    os.truncate(path, size)
    return path


@contextmanager
def loop_device(image: Path) -> Iterator[str]:
    """Yield the name of a loop device with the content of ``image``; skip the test if there is none."""
    argv = ["losetup", "--find", "--show", "--partscan", str(image)]
    losetup = subprocess.run(argv, capture_output=True, text=True, check=False)
    if losetup.returncode:
        pytest.skip(f"no loop device: {losetup.stderr.strip()}")
    name = losetup.stdout.strip()
    yield name
    subprocess.run(["losetup", "--detach", name], check=True)
