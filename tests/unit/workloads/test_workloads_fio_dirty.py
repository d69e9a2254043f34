"""Faulty fio programs, from the command line to the sample, cause an error and never a wrong number."""

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from measured_loads import needs_fio
from processes import processes

from storagetest.errors import WorkloadError
from storagetest.polling import wait_until
from storagetest.protocols.base import Attachment
from storagetest.workloads._fio.job import FioJob
from storagetest.workloads._fio.run import run_fio
from storagetest.workloads.base import LoadSize
from storagetest.workloads.small_random_write import SmallRandomWrite

# As fio 3.33 printed it: 4 KiB randwrite at depth 8 for 0.5 s after a ramp of 0.2 s.
CLEAN = Path(__file__).parent / "fio-3.33-randwrite.json"
LINES = len(CLEAN.read_text().splitlines())
MIB = 1 << 20
SCALE = LoadSize(size=4 * MIB, ramp=0.2, runtime=0.5, interval=0.1)
LOAD = SmallRandomWrite()
LOGGING = FioJob("w", "/f", "randwrite", 4096, 4096, runtime=0.1, log_interval=0.1)  # logs want a directory
NOISE = "fio: this platform does not support process shared mutexes, forcing use of threads."


def measure(directory: Attachment):
    return LOAD.measure(directory, LOAD.Options(), SCALE)


@pytest.mark.parametrize(
    "script",
    [
        f"cat {CLEAN}",
        f"echo '{NOISE}'; cat {CLEAN}",
        f"cat {CLEAN}; echo '{NOISE}'",
        f"head -n 40 {CLEAN}; echo '{NOISE}'; tail -n +41 {CLEAN}",
        f"cat {CLEAN}; echo '{NOISE}' >&2; printf '1795264356451, 19424, 0, 40' > load_bw.log",
        f"head -c 100000 /dev/urandom > load_iops.log; cat {CLEAN}",
    ],
    ids=["clean", "before", "after", "inside", "half a log", "rubbish for a log"],
)
def test_what_it_prints_besides_changes_no_number(directory, programs, script):
    programs(fio=script)
    sample = measure(directory)
    programs(fio=f"cat {CLEAN}")
    clean = measure(directory)
    assert (sample.latency, sample.ios) == (clean.latency, clean.ios)
    assert {**sample.values, "client_cpu": 0} == {**clean.values, "client_cpu": 0}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 1", "gave no report"),
        ("echo 'fio: out of memory' >&2; exit 1", r"gave no report(.|\n)*out of memory"),
        (f"head -n {LINES // 2} {CLEAN}", "breaks off"),
        (f"head -n {LINES // 2} {CLEAN}; kill -9 $$", r"breaks off(.|\n)*status 137"),
        ("kill -9 $$", r"gave no report(.|\n)*status 137"),
        (f"cat {CLEAN}; kill -11 $$", r"fio failed(.|\n)*status 139"),
        (f"cat {CLEAN}; exit 3", "status 3"),
        (f"cat {CLEAN}; cat {CLEAN}", "2 reports"),
        (f"sed 's/\"error\" : 0/\"error\" : 28/' {CLEAN}", "No space left on device"),
        (f"sed 's/\"runtime\" : [1-9][0-9]*/\"runtime\" : 120/' {CLEAN}", "ended early: it measured 0.12 s"),
        (f"sed 's/\"total_ios\" : \\([1-9]\\)/\"total_ios\" : 9\\1/' {CLEAN}", "contradicts itself"),
        ("cat /dev/zero | head -c 70000000", "printed more than 64 MiB"),
        ("echo '{}'", "gave no report|breaks off|cannot be trusted"),
        ("echo \"fio: unrecognized option '--allow_file_create=0'\" >&2; exit 1",
         r"gave no report(.|\n)*unrecognized option"),
        ("""printf '{\\n  "fio version" : "fio-2.16",\\n  "jobs" : []\\n}\\n'""",
         "fio-2.16 is too old: fio 3.19 or newer"),
    ],
)  # fmt: skip
def test_faulty_fio_is_an_error(directory, programs, script, message):
    programs(fio=script)
    with pytest.raises(Exception, match=message) as caught:
        measure(directory)
    assert type(caught.value).__module__ == "storagetest.errors"
    assert str(caught.value).startswith("here: ")


@pytest.mark.parametrize(
    ("scripts", "message"),
    [({}, "^here: fio is missing: install the package fio"), ({"fio": "exit 1"}, "gave no report")],
    ids=["none", "broken"],
)
def test_a_client_without_a_fio_that_works_lacks_no_engine(directory, programs, scripts, message):
    """It would be a skip, and a client that cannot measure would stay green."""
    programs(**scripts)
    with pytest.raises(WorkloadError, match=message):
        LOAD.measure(directory, LOAD.Options(engine="libaio"), SCALE)


def test_nothing_of_it_is_left_in_memory(directory, programs, tmp_path):
    places = tmp_path / "places"
    here = f"pwd >> {places}; touch load_bw.log"
    programs(fio=f"{here}; cat {CLEAN}")
    run_fio(directory.client, LOGGING, deadline=60)
    programs(fio=f"{here}; cat /dev/zero | head -c 70000000")
    with pytest.raises(Exception, match="printed more than"):
        run_fio(directory.client, LOGGING, deadline=60)
    programs(fio=f"{here}; exec sleep 600")
    with pytest.raises(WorkloadError, match=r"did not end within 1 s(.|\n)*dmesg"):
        run_fio(directory.client, LOGGING, deadline=1)
    made = places.read_text().split()
    assert len(set(made)) == 3
    assert all(place.startswith("/dev/shm/storagetest-") for place in made)
    assert not [place for place in made if Path(place).exists()]


@needs_fio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_real_fio_ended_in_mid_run_gives_no_number(directory, number):
    LOAD.fill(directory, LOAD.Options(), SCALE)
    with ThreadPoolExecutor() as threads:
        measuring = threads.submit(LOAD.measure, directory, LOAD.Options(), replace(SCALE, runtime=20.0))
        pid = wait_until(lambda: fio_of(directory.path), 10, "fio", interval=0.05)
        time.sleep(0.7)
        os.kill(pid, number)
        error = measuring.exception(15)
    assert isinstance(error, WorkloadError)
    # How far it had come is a matter of how busy this machine is.
    assert re.search("ended early|no report|breaks off|did no I/O", str(error))


def fio_of(path: str) -> int | None:
    return next((pid for pid, _, line in processes() if line.startswith("fio ") and path in line), None)


@needs_fio
def test_full_disk_in_mid_run_is_an_error(directory, small_fs):
    tiny = replace(directory, path=small_fs("size=8m"), size=8 * MIB)
    options = LOAD.Options.model_validate({"engine": "psync", "queue_depth": 1, "direct": False})
    LOAD.fill(replace(tiny, size=4 * MIB), options, replace(SCALE, size=2 * MIB))
    file = Path(tiny.path) / f"storagetest-{2 * MIB}.dat"
    with file.open("r+b") as data:  # as a thin volume behaves: its data has lost its space
        data.truncate(256 * 1024)
        data.truncate(2 * MIB)
    (Path(tiny.path) / "others").write_bytes(b"x" * (7 * MIB))
    with pytest.raises(WorkloadError, match=r"No space left on device(.|\n)*ran, with exit status"):
        LOAD.measure(tiny, options, replace(SCALE, size=2 * MIB, runtime=2.0))
