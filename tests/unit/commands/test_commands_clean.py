"""`storagetest clean` after a run that was killed while it generated load: real commands, real fio.

Each test runs in PID and mount namespaces of its own: processes and journal of other runs are not visible.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from loop_devices import loop_device, make_image, needs_loop_devices

from storagetest.polling import wait_until

UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
TARGETS = """
version: 1
targets: {{disk: {{protocol: local, path: {data}}}}}
profiles: {{long: {{runtime: 300s, ramp: 0, size: 8MiB, repeats: 1}}}}
"""
SUITE = "def test_load(measure): measure('small-random-write')\n"

# Run a suite, kill it while fio runs, and print what each command does, as one JSON object.
DRIVER = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from processes import processes
from storagetest.polling import wait_until

def fio():
    lines = [(pid, line) for pid, _, line in processes() if line.startswith("fio ")]
    return sorted(pid for pid, line in lines if "--runtime=300000ms" in line)

def clean(*options):
    argv = [sys.executable, "-m", "storagetest", "clean", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    return {"status": done.returncode, "output": done.stdout, "fio": fio(), "left": left()}

def left():
    return sorted(path.name for path in Path(sys.argv[2]).iterdir())

def killed_run():
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--st-profile", "long", "suite.py"]
    run = subprocess.Popen(argv, stdout=sys.stderr)
    wait_until(lambda: fio() or run.poll() is not None, 120, "fio")
    wait_until(lambda: left() or run.poll() is not None, 60, "the run's directory")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    return run.pid
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def drive(tmp_path: Path, data: Path) -> Callable[[str], dict]:
    """Return a function that runs the driver and a script after it in new namespaces."""
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot make namespaces (unshare(1))")
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed on this machine")
    (tmp_path / "targets.yaml").write_text(TARGETS.format(data=data))
    (tmp_path / "suite.py").write_text(SUITE)
    (tmp_path / "journal").mkdir()
    kits = Path(__file__).parents[2] / "kits"

    def run(script: str) -> dict:
        journal = (
            'mkdir -p /var/lib/storagetest && mount --bind "$1" /var/lib/storagetest && shift && exec "$@"'
        )
        inner = [sys.executable, "-c", DRIVER + script, str(kits), str(data)]
        argv = [*UNSHARE, "sh", "-c", journal, "sh", str(tmp_path / "journal"), *inner]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr
        result: dict = json.loads(done.stdout.splitlines()[-1])
        return result

    return run


def test_a_killed_runs_load_is_ended_before_its_attachments_are_undone(drive) -> None:
    found = drive("""
pid = killed_run()
print(json.dumps({"pid": pid, "fio": fio(), "left": left(), "first": clean(), "second": clean()}))
""")
    assert found["fio"], "fio ended by itself"
    assert len(found["left"]) == 1
    first, second = found["first"], found["second"]
    assert (first["status"], first["fio"], first["left"]) == (0, [], []), first
    ended, undone = first["output"].splitlines()
    assert f"of the run {found['pid']} on " in ended
    assert ended.endswith(": ended")
    assert all(f" {pid} (fio)" in ended for pid in found["fio"])
    assert undone.endswith(f"{found['left'][0]}: undone")
    assert (second["status"], second["output"]) == (0, "")


def test_what_stays_on_the_target_is_reported_once_and_is_no_success(drive) -> None:
    found = drive("""
entry = (
    "from storagetest.hosts import Journal, LocalHost, Step;"
    "step = Step(('sh', '-c', 'exit 3'), leaves={'3': 'a directory is left on the target'});"
    "Journal(LocalHost()).open('mount of nas:/a', [step])"
)
subprocess.run([sys.executable, "-c", entry], check=True)
print(json.dumps({"first": clean(), "second": clean()}))
""")
    first, second = found["first"], found["second"]
    assert first["output"].endswith("mount of nas:/a: undone in part: a directory is left on the target\n")
    assert first["status"] == 1
    assert (second["status"], second["output"]) == (0, "")


def test_the_load_of_a_running_run_is_not_touched(drive) -> None:
    found = drive("""
argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--st-profile", "long", "suite.py"]
run = subprocess.Popen(argv, stdout=sys.stderr)
wait_until(lambda: fio() or run.poll() is not None, 120, "fio")
before = fio()
print(json.dumps({"pid": run.pid, "before": before, "clean": clean()}))
""")
    assert found["before"]
    assert found["clean"]["fio"] == found["before"]
    assert found["clean"]["status"] == 1
    assert f"in use: its owner, process {found['pid']}, is still running" in found["clean"]["output"]
    assert "(fio)" not in found["clean"]["output"]


def test_a_client_that_cannot_be_asked_is_not_clean_and_does_not_hide_the_others(drive) -> None:
    found = drive("""
pid = killed_run()
with open("targets.yaml", "a") as file:
    file.write("clients: {away: {transport: ssh, address: 127.0.0.1, port: 9}, here: {transport: local}}\\n")
print(json.dumps(clean()))
""")
    away, processes, attachment = found["output"].splitlines()
    assert away.startswith("away: not cleaned: ")
    assert (processes[:6], processes[-7:], attachment[-8:]) == ("here: ", ": ended", ": undone")
    assert (found["status"], found["fio"], found["left"]) == (1, [], [])


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs: no write to it waits for a loaded disk."""
    place = tmp_path / "memory"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "memory", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # a loop device is detached later


@pytest.fixture
def file_system(data: Path, memory: Path) -> Iterator[Path]:
    """An ext4 file system on ``data``, which can be frozen (FIFREEZE): its writers cannot be killed then."""
    image = make_image(memory / "image", 64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with loop_device(image) as device:
        subprocess.run(["mount", device, data], check=True)
        (data / "lost+found").rmdir()
        try:
            yield data
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", data], capture_output=True, check=False)
            unmount = ["umount", str(data)]
            wait_until(
                lambda: subprocess.run(unmount, capture_output=True, check=False).returncode == 0,
                20,
                "the end of the users of the file system",
                interval=0.2,
            )


@needs_loop_devices
def test_a_process_that_cannot_be_killed_is_reported_and_keeps_the_attachment(file_system, drive) -> None:
    found = drive("""
def waiting():  # fio's threads in the state D, each with its number of context switches
    found = {}
    for path in [path for pid in fio() for path in Path(f"/proc/{pid}/task").glob("*/status")]:
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        if lines["State"].split()[0] == "D":
            found[path] = lines["voluntary_ctxt_switches"]
    return found

def blocked():  # for good: every I/O waits in the state D for a moment
    before = waiting()
    time.sleep(2.0)
    return bool(before.items() & waiting().items())

pid = killed_run()
subprocess.run(["fsfreeze", "--freeze", sys.argv[2]], check=True)
try:
    wait_until(blocked, 60, "a blocked fio")
    frozen = clean()
finally:
    subprocess.run(["fsfreeze", "--unfreeze", sys.argv[2]], check=True)
print(json.dumps({"pid": pid, "frozen": frozen, "repaired": clean()}))
""")
    frozen, repaired = found["frozen"], found["repaired"]
    assert frozen["status"] == 1, frozen
    assert frozen["fio"]
    assert len(frozen["left"]) == 1
    processes, attachment = frozen["output"].splitlines()
    assert "(fio) cannot be killed: it hangs in the kernel" in processes
    assert ": failed: " in processes
    assert attachment.endswith(": in use: processes of its run are left; undo it by force")
    assert (repaired["status"], repaired["fio"], repaired["left"]) == (0, [], []), repaired
    assert repaired["output"].splitlines()[-1].endswith(": undone")
