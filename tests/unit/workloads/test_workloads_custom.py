"""Custom workloads: in a targets file, as a job file, as a function."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_loads import measured, needs_fio

from storagetest.config import Config, load
from storagetest.config.schema import json_schema
from storagetest.errors import ConfigError, WorkloadError
from storagetest.registry import get_registry
from storagetest.workloads._custom.job_file import read_jobs
from storagetest.workloads.base import LoadSize, Workload

SCALE = LoadSize(size=4 << 20, ramp=0, runtime=0.4)
TARGETS = """\
version: 1
targets:
  disk: {{protocol: local, path: {path}}}
workloads:
{own}
"""
FUNCTIONS = """\
from storagetest.measure.histogram import Histogram
from storagetest.measure.run import Sample


def dirty(attachment, scale):
    done = attachment.client.run(["stat", "-f", "--format=%a", attachment.path], deadline=10)
    return {"free": int(done.stdout), "repeat": scale.repeat}


def rich(attachment, scale):
    return Sample({"p50": 0.001}, 1.0, 3, Histogram.of([0.001] * 3), invalid=("too warm",))


def unknown(attachment, scale):
    return {"speed": 1}


def text(attachment, scale):
    return {"free": "much"}


def nothing(attachment, scale):
    return {}


def none(attachment, scale):
    return None


def raises(attachment, scale):
    return 1 / 0


def claims(attachment, scale):
    assert attachment.size < 0, "the target is too large"


NUMBER = 5
"""


def made(config: Config, name: str) -> Workload[Any]:
    """Return the workload ``name`` of ``config``, as the plugin makes it."""
    kind: Any = config.workload(name)
    return kind()


@pytest.fixture
def named(tmp_path: Path):
    """Load a targets file with these lines under `workloads`."""
    place = tmp_path / "user"
    (place / "disk").mkdir(parents=True)
    (place / "own_loads.py").write_text(FUNCTIONS)

    def read(*own: str, more: str = "") -> Config:
        text = TARGETS.format(path=place / "disk", own="\n".join(f"  {line}" for line in own))
        (place / "targets.yaml").write_text(text + more)
        return load(place / "targets.yaml")

    return read


def write(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "user" / name).write_text(text)


TWO = "[pages]\nrw=randrw\nbs=8k\n[log]\nrw=write\nbs=4k\nfdatasync=1\n"


@needs_fio
def test_a_job_file_is_a_workload_with_gates_like_any_other(named, tmp_path, directory):
    write(tmp_path, "oltp.fio", TWO)
    more = 'thresholds: {my-oltp: ["iops >= 10", "log_p99 <= 5ms"]}\n'
    config = named("my-oltp: {fio: oltp.fio}", more=more)
    (variant,) = config.variants
    texts = [threshold.text for threshold in config.thresholds_for(variant, "my-oltp", {})]
    assert texts == ["iops >= 10", "log_p99 <= 5ms"]
    load_ = made(config, "my-oltp")
    assert load_.title(load_.Options()) == "my-oltp"
    assert load_.parameters(load_.Options())["job_file"] == "oltp.fio"
    sample = measured(load_, directory, {}, SCALE)
    submission = {"submission_mean", "submission_p50", "submission_p99"}  # psync waits in it: it has none
    assert set(sample.values) == set(load_.metrics) - submission
    assert sample.values["iops"] == pytest.approx(sample.values["pages_iops"] + sample.values["log_iops"])
    assert sample.operations["pages"].count + sample.operations["log"].count == sample.latency.count
    words = shlex.split(sample.evidence["argv"])
    (file,) = Path(directory.path).glob("*.dat")
    assert {word for word in words if word.startswith("--filename=")} == {f"--filename={file}"}
    assert file.stat().st_size == SCALE.size
    assert sample.evidence["job file"] == TWO


@needs_fio
def test_one_job_has_the_usual_metrics_and_every_repeat_another_seed(named, tmp_path, directory):
    write(tmp_path, "one.fio", "[one]\nrw=randread\nioengine=libaio\ndirect=1\niodepth=4\nruntime=1h\n")
    load_ = made(named("one: {fio: one.fio}"), "one")
    load_.fill(directory, load_.Options(), SCALE)
    seen = []
    for repeat in range(2):
        sample = load_.measure(directory, load_.Options(), LoadSize(4 << 20, 0.1, 0.3, repeat))
        seen += [word for word in shlex.split(sample.evidence["argv"]) if "seed" in word]
        assert 0.25 <= sample.seconds < 1
    assert len(set(seen)) == 2
    assert set(sample.operations) <= {"completion", "submission"}


def test_two_files_in_one_process_do_not_see_each_others(named, tmp_path):
    write(tmp_path, "one.fio", "[one]\n")
    registered = dict(get_registry("storagetest.workloads").all())
    first = named("one: {fio: one.fio}", "same: {fio: one.fio}")
    write(tmp_path, "one.fio", "[one]\nbs=8k\n")
    second = named("two: {fio: one.fio}", "same: {fio: one.fio}")
    assert (first.custom_workloads, second.custom_workloads) == (("one", "same"), ("two", "same"))
    assert made(first, "same").parameters({})["digest"] != made(second, "same").parameters({})["digest"]
    for config, absent in ((first, "two"), (second, "one")):
        assert config.workloads.keys() == {*registered, *config.custom_workloads}
        with pytest.raises(ConfigError, match=f"unknown workload '{absent}'"):
            config.thresholds_for(config.variants[0], absent, {})
    assert get_registry("storagetest.workloads").all() == registered


def test_a_function_is_one_too(named, tmp_path, directory):
    metrics = "{free: {unit: count, better: higher}, repeat: {unit: count, better: lower}}"
    config = named(
        f'mine: {{python: "own_loads:dirty", metrics: {metrics}, needs: [filesystem]}}',
        more='thresholds: {mine: ["free >= 10"]}\n',
    )
    assert len(config.thresholds_for(config.variants[0], "mine", {})) == 1
    load_ = made(config, "mine")
    assert load_.needs == {"filesystem"}
    assert load_.headline == ("free", "repeat")
    sample = load_.measure(directory, load_.Options(), LoadSize(1, 0, 1, repeat=2))
    assert sample.values["repeat"] == 2
    assert sample.values["free"] > 0
    assert sample.seconds > 0


def test_a_function_may_return_a_whole_sample(named, tmp_path, directory):
    load_ = made(named('mine: {python: "own_loads:rich"}'), "mine")
    sample = measured(load_, directory, {}, SCALE)
    assert (sample.invalid, sample.latency.count) == (("too warm",), 3)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("unknown", "own_loads:unknown returned 'speed', which is not one of its metrics: bandwidth, iops"),
        ("text", "returned 'free', which is not one"),
        ("nothing", "own_loads:nothing returned no metric"),
        ("none", "returned a NoneType; expected a mapping of metric"),
        ("raises", r"own_loads:raises raised ZeroDivisionError: division by zero\n  at .*own_loads.py:31"),
    ],
)
def test_a_function_that_keeps_not_to_the_contract_is_an_error(named, tmp_path, directory, function, message):
    load_ = made(named(f'mine: {{python: "own_loads:{function}"}}'), "mine")
    with pytest.raises(WorkloadError, match=message):
        measured(load_, directory, {}, SCALE)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True])
def test_impossible_value_of_a_metric_is_an_error(named, directory, monkeypatch, value):
    load_ = made(named('mine: {python: "own_loads:text", metrics: {free: {unit: s, better: lower}}}'), "mine")
    monkeypatch.setattr(type(load_), "function", staticmethod(lambda *_: {"free": value}))
    with pytest.raises(
        WorkloadError, match=f"free={value!r}; expected a number|impossible value: free is {value} s"
    ):
        measured(load_, directory, {}, SCALE)


def test_what_is_no_number_is_an_error_and_a_claim_is_the_targets(named, tmp_path, directory):
    config = named(
        'mine: {python: "own_loads:text", metrics: {free: {unit: s, better: lower}}}',
        'other: {python: "own_loads:claims"}',
    )
    load_ = made(config, "mine")
    with pytest.raises(WorkloadError, match="free='much'; expected a number"):
        measured(load_, directory, {}, SCALE)
    with pytest.raises(AssertionError, match="too large"):
        measured(made(config, "other"), directory, {}, SCALE)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("mine: {fio: none.fio}", r"targets.yaml:5:15: the job file .*none.fio cannot be read: No such file"),
        ("mine: {fio: bad.fio}", r"bad.fio:3:1: filename: a job file must not name"),
        ("mine: {}", r"targets.yaml:5:\d+: workloads.mine: give one of fio"),
        ('mine: {fio: bad.fio, python: "a:b"}', "give one of fio"),
        ("mine: {fio: bad.fio, needs: [block]}", "metrics and needs belong to python"),
        ("mine: {fioo: x}", r"targets.yaml:5:\d+: workloads.mine.fioo: no such key; did you mean 'fio'"),
        ("sequential: {fio: bad.fio}", "workloads.sequential: there is a workload of that name already"),
        ("a b: {fio: bad.fio}", "invalid name 'a b'"),
        (
            'mine: {python: "own_loads"}',
            r"targets.yaml:5:\d+: .*'own_loads': expected package.module:function",
        ),
        ('mine: {python: "os:system;x"}', "expected package.module:function"),
        ('mine: {python: "no_such_module_here:f"}', "no_such_module_here cannot be imported: ModuleNotFound"),
        ('mine: {python: "own_loads:NUMBER"}', "own_loads has no function NUMBER"),
        ('mine: {python: "own_loads:absent"}', "own_loads has no function absent"),
        ('mine: {python: "broken:f"}', "broken cannot be imported: SyntaxError"),
        (
            'mine: {python: "own_loads:rich", metrics: {x: {unit: parsec, better: lower}}}',
            r"workloads.mine.metrics.x.unit: 'parsec' is not",
        ),
    ],
)
def test_error_in_the_file_has_its_location(named, tmp_path, own, message):
    write(tmp_path, "bad.fio", "[a]\nrw=read\nfilename=/etc/passwd\n")
    write(tmp_path, "broken.py", "def f(:\n")
    with pytest.raises(ConfigError, match=message):
        named(own)


def test_the_schema_describes_them():
    assert json_schema()["properties"]["workloads"]["additionalProperties"]["$ref"].endswith(
        "CustomWorkloadEntry"
    )


OLTP = """\
; an order database
[global]
ioengine=libaio
direct=1
bs=8k            # a page
runtime=60
size=10g

[pages]
rw = randrw
rwmixread = 70
iodepth=16
numjobs=2
[log]
rw=write
bs=16k
fdatasync=1
description=commits; one after another
"""


def test_a_file_is_its_jobs_with_what_holds_for_all():
    pages, log = read_jobs(OLTP, "oltp.fio")
    assert (pages.name, pages.directions, pages.in_flight) == ("pages", ("read", "write"), 32)
    assert pages.options == {
        "ioengine": "libaio", "direct": "1", "bs": "8k", "rw": "randrw", "rwmixread": "70", "iodepth": "16",
        "numjobs": "2",
    }  # fmt: skip
    assert (log.name, log.directions, log.in_flight) == ("log", ("write",), 1)
    assert log.options["bs"] == "16k"
    assert "size" not in log.options
    assert "description" not in log.options


def test_a_name_alone_switches_on_and_other_names_mean_the_same():
    (job,) = read_jobs("[a]\nreadwrite=randread\nblocksize=4k\nnorandommap\n", "f")
    assert job.options == {"ioengine": "psync", "rw": "randread", "bs": "4k", "norandommap": "1"}
    assert not job.makes_its_data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f:1:1: no [job] section, only [global]"),
        ("[global]\nbs=4k\n", "f:1:1: no [job] section, only [global]"),
        ("bs=4k\n[a]\n", "f:1:1: expected [job] or [global]; is this a job file of fio?"),
        ("[a]\n  filename=/dev/sda\n", "f:2:3: filename: a job file must not name files"),
        ("[a]\ndirectory=../..\n", "f:2:1: directory: a job file must not name"),
        ("[a]\nfilename_format=x\n", "f:2:1: filename_format: a job file must not name"),
        ("[a]\noffset=1g\n", "f:2:1: offset: a job file must not name"),
        ("[a]\nexec_prerun=rm -rf /\n", "f:2:1: exec_prerun: a job file must only define I/O"),
        ("[a]\nexec_postrun=x\n", "f:2:1: exec_postrun: a job file must only define I/O"),
        ("include other.fio\n[a]\n", "f:1:1: expected [job] or [global]"),
        ("[a]\ninclude other.fio\n", "f:2:1: include: a job file must only define I/O"),
        ("[a]\nioengine=exec\n", "f:1:1: [a]: ioengine=exec: expected one of io_uring,"),
        ("[a]\nioengine=external:/tmp/x.so\n", "f:1:1: [a]: ioengine=external:/tmp/x.so: expected one of"),
        ("[a]\nioengine=filedelete\n", "ioengine=filedelete: expected one of"),
        ("[a]\nwrite_bw_log=/etc/passwd\n", "f:2:1: write_bw_log: this option is not supported in job files"),
        ("[a]\nread_iolog=x\n", "f:2:1: read_iolog: this option is not supported"),
        ("[a]\nverify=crc32c\n", "f:2:1: verify: this option is not supported"),
        ("[a]\nunlink=1\n", "f:2:1: unlink: this option is not supported"),
        ("[a]\nFILENAME=/dev/sda\n", "f:2:1: FILENAME: this option is not supported"),
        ("[a]\nstonewall\n", "f:2:1: stonewall: all jobs of a file run at the same time"),
        ("[a]\nrw=randtrim\n", "f:1:1: [a]: rw=randtrim: expected one of read,"),
        ("[a]\nrw=\n", "f:2:1: rw: the value after the = is missing"),
        ("[a]\nbs=${SIZE}\n", "f:2:1: bs: '${SIZE}' is not accepted: no variables"),
        ("[a]\nbs=`id`\n", "is not accepted"),
        ('[a]\nbs="4k"\n', "is not accepted"),
        ("[a]\nbs=4k --filename=/dev/sda\n", "is not accepted"),
        ("[a]\niodepth=0\n", "f:1:1: [a]: iodepth=0: expected a number from 1 to 9999"),
        ("[a]\nnumjobs=many\n", "[a]: numjobs=many: expected a number"),
        ("[a]\nioengine=libaio\n", "libaio without direct=1"),
        ("[a]\nrw=randrw\nrwmixread=100\n", "rwmixread=100 is not a mix: use rw=read"),
        ("[a b]\n", "f:1:1: [a b]: a job's name leads"),
        ("[a]\n[b]\n[a]\n", "f:3:1: [a] is defined twice"),
    ],
)
def test_refused_option_has_location_and_reason(text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_jobs(text, "f")


@given(st.text(alphabet="[]=;# \n\t$`'\"/.%:-aefhilmnrstwxz_0189é", max_size=200))
def test_no_text_is_a_traceback_and_none_names_a_place(text):
    try:
        jobs = read_jobs(text, "f")
    except ConfigError as error:
        assert error.place is not None
    else:
        for job in jobs:
            assert not {"filename", "directory", "exec_prerun"} & set(job.options)
            assert not any(set(value) & set(" $`'\"") for value in job.options.values())


def test_a_preset_has_the_parameters_of_the_file_unless_a_case_sets_others(named):
    config = named(
        "small: {load: sequential, parameters: {direction: write, block_size: 64KiB}}",
        more='thresholds: {"small[block_size=64KiB]": ["bandwidth >= 1MiB/s"]}\n',
    )
    load = made(config, "small")
    options = load.Options()
    assert (options.direction, options.block_size, options.queue_depth) == ("write", 64 << 10, 4)
    assert load.title(options) == "small write 64KiB"
    assert load.parameters(options)["block_size"] == "64KiB"
    assert load.Options(direction="read").direction == "read"
    (variant,) = config.variants
    assert len(config.thresholds_for(variant, "small", options.model_dump())) == 1


@needs_fio
def test_a_preset_is_measured(named, directory):
    load = made(named("curve: {load: sweep, parameters: {values: [4KiB, 8KiB]}}"), "curve")
    sample = measured(load, directory, {}, SCALE)
    assert sample.values["block_size_8192_iops"] > 0


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{load: sequentiall}", r"targets\.yaml:5:15: no such entry in workloads: 'sequentiall'"),
        ("{load: sweep, parameters: {over: size}}", r"targets\.yaml:5:15: sweep: over: "),
        ("{load: sweep, fio: a.fio}", "give one of fio: a job file"),
        ("{fio: a.fio, parameters: {jobs: 1}}", "parameters belong to load"),
        ("{load: sweep, needs: [block]}", "metrics and needs belong to python"),
    ],
)
def test_a_preset_that_cannot_be_is_refused(named, entry, message):
    with pytest.raises(ConfigError, match=message):
        named(f"own: {entry}")
