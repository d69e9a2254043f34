"""The servers that tests start on loopback end with the process that started them, however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import ganesha
import pytest
import smbd

from storagetest.polling import wait_until

TESTS = Path(__file__).parents[1]
STARTED = """
import sys, time
sys.path[:0] = sys.argv[1:]
import {module}
with {module}.{module}() as server:
    print(server.{port}, flush=True)
    time.sleep(300)
"""


def listeners(port: int) -> list[str]:
    """Return the lines of ss(8) about sockets that listen on a port."""
    argv = ["ss", "--no-header", "--listening", "--tcp", "--numeric", f"sport = :{port}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


@pytest.mark.skipif(shutil.which("ss") is None, reason="ss (iproute2) is not installed")
@pytest.mark.parametrize(
    ("module", "port", "installed"),
    [("ganesha", "nfs", ganesha.is_installed), ("smbd", "port", smbd.is_installed)],
)
def test_a_server_ends_with_a_process_that_is_killed(module: str, port: str, installed: Callable[[], bool]):
    if not installed():
        pytest.skip(f"{module} is not installed")
    argv = [sys.executable, "-c", STARTED.format(module=module, port=port)]
    paths = [str(TESTS / "controllers"), str(TESTS / "kits")]
    # tmp_path is too long for the servers' sockets. A server may write files until it has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as short:
        environment = os.environ | {"TMPDIR": short}
        with subprocess.Popen([*argv, *paths], stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            number = int(process.stdout.readline())
            assert listeners(number)
            os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not listeners(number), 60, f"the end of {module}", interval=0.2)
