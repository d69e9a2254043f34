"""Program of a lab machine: after a resume from a snapshot, make anew what must differ between two labs.

The process starts at boot, so it is part of the snapshot and needs no time to start. Its standard input is
the console, which the supervisor writes to, one JSON object per line. An empty object asks whether the
machine runs; the response is the milestone "resumed". The second has the time, the keys and the passwords of
this lab.

The random number generator is reseeded before sshd starts, because sshd makes session keys from it.
"""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import time
import tty
from pathlib import Path
from typing import Any

RNDADDENTROPY, RNDRESEEDCRNG = 0x40085203, 0x5207  # linux/random.h
PID_FILE = Path("/run/sshd.pid")
NOT_AVAILABLE = 77  # WITHOUT in lib.sh
TIMEOUT = 60.0  # seconds


def reseed(seed: bytes) -> None:
    """Add ``seed`` to the kernel's random number generator, and apply it at once (random(4))."""
    with Path("/dev/urandom").open("wb") as device:
        fcntl.ioctl(device, RNDADDENTROPY, struct.pack("ii", 8 * len(seed), len(seed)) + seed)
        fcntl.ioctl(device, RNDRESEEDCRNG)


def write_files(files: dict[str, str]) -> None:
    """Write the files of this lab; only root can read them."""
    os.umask(0o077)
    for path, text in files.items():
        Path(path).write_text(text)
    os.umask(0o022)


def restart_sshd() -> None:
    """Make the SSH server read its new host key (SIGHUP, sshd(8)); return when it listens."""
    process = int(PID_FILE.read_text())
    PID_FILE.unlink()
    os.kill(process, signal.SIGHUP)
    end = time.monotonic() + TIMEOUT
    while not PID_FILE.exists():  # sshd writes it when it listens
        if time.monotonic() > end:
            raise TimeoutError(f"sshd did not start again within {TIMEOUT:g} s")
        time.sleep(0.01)


def start_credentials() -> list[subprocess.Popen[str]]:
    """Start the scripts that give the services their new passwords."""
    scripts = sorted(Path("/run/lab/credentials").glob("*.sh"))
    return [
        subprocess.Popen(
            ["busybox", "sh", "-eu", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for script in scripts
    ]


def apply(settings: dict[str, Any]) -> None:
    """Apply the settings of this lab. Raises an exception if a part of them fails."""
    time.clock_settime(time.CLOCK_REALTIME, settings["time"])
    reseed(bytes.fromhex(settings["seed"]))
    write_files(settings["files"])
    scripts = start_credentials()
    restart_sshd()
    for script in scripts:
        output, _ = script.communicate(timeout=TIMEOUT)
        if script.returncode not in {0, NOT_AVAILABLE}:
            raise RuntimeError(f"credentials: {output[-300:]}")


def main() -> None:
    """Read and apply settings until the machine ends."""
    tty.setraw(0)  # no echo, and no limit of the length of a line
    Path("/run/lab/save").unlink()  # boot.sh waits for this
    for line in sys.stdin:
        message = json.loads(line)
        if not message:
            print("storagetest: resumed", flush=True)
            continue
        try:
            apply(message)
        except Exception as error:  # the supervisor boots the machine then
            print(f"storagetest: failed: resume: {' '.join(str(error).split())}", flush=True)
        else:
            print("storagetest: ready", flush=True)


if __name__ == "__main__":
    main()
