"""Scaling and neighbours, with a real fio on a directory."""

import shlex
from dataclasses import replace
from unittest.mock import Mock

import pytest
from measured_loads import measured, needs_fio
from pydantic import ValidationError

from storagetest.errors import WorkloadError
from storagetest.measure.scaling import jain
from storagetest.workloads.base import LoadSize
from storagetest.workloads.multi_user import LEVELS, MultiUser
from storagetest.workloads.noisy_neighbour import NoisyNeighbour
from storagetest.workloads.sweep import Sweep

pytestmark = needs_fio
MIB = 1 << 20
SCALE = LoadSize(size=4 * MIB, ramp=0, runtime=0.6)
USERS = MultiUser()
NOISY = NoisyNeighbour()
SWEEP = Sweep()


def of(sample, option):
    """The option's values, in the order of the command lines."""
    words = shlex.split(sample.evidence["argv"])
    return [word.partition("=")[2] for word in words if word.startswith(f"--{option}=")]


@pytest.mark.parametrize(("read_percent", "rw"), [(70, "randrw"), (100, "randread"), (0, "randwrite")])
def test_every_level_is_measured(directory, read_percent, rw):
    sample = measured(USERS, directory, {"levels": [1, 4], "read_percent": read_percent}, SCALE)
    values = sample.values
    assert of(sample, "numjobs") == ["1", "4"]
    assert set(of(sample, "iodepth")) == {"1"}
    assert set(of(sample, "rw")) == {rw}
    assert of(sample, "runtime") == ["300ms", "300ms"]
    assert len(set(of(sample, "randseed"))) == 2
    assert values["iops_at_peak"] == max(values["threads_1_iops"], values["threads_4_iops"])
    assert values["iops_at_peak"] == values[f"threads_{int(values['threads_at_peak'])}_iops"]
    assert values["iops_at_knee"] == values[f"threads_{int(values['knee_threads'])}_iops"]
    assert sample.ios == sum(histogram.count for histogram in sample.operations.values())
    assert len(sample.evidence["curve"].splitlines()) in (3, 4)
    assert "peak" in sample.evidence["curve"]


@pytest.mark.parametrize(("runtime", "levels"), [(0.1, 2), (1.0, 2), (2.0, 4), (30.0, len(LEVELS))])
def test_there_are_as_many_levels_as_there_is_time_for(directory, monkeypatch, runtime, levels):
    run = Mock(side_effect=WorkloadError("enough"))
    monkeypatch.setattr(MultiUser, "run", run)
    with pytest.raises(WorkloadError, match="enough"):
        USERS.measure(directory, USERS.Options(), replace(SCALE, runtime=runtime))
    _, _, scale, job = run.call_args.args
    assert (job.jobs, scale.runtime) == (1, pytest.approx(runtime / levels))


def test_title_has_the_levels():
    assert USERS.title(USERS.Options(levels=(1, 2))) == "multi-user 1,2"


@pytest.mark.parametrize("engine", ["libaio", "psync"])
def test_victim_is_measured_alone_and_with_its_neighbours(directory, engine):
    sample = measured(NOISY, directory, {"neighbours": 3, "engine": engine}, SCALE)
    values = sample.values
    assert set(values) == set(NOISY.metrics)
    assert of(sample, "rw") == ["randread", "randread", *["randwrite"] * 3]
    assert of(sample, "bs") == ["4096", "4096", *["65536"] * 3]
    assert set(of(sample, "iodepth")[2:]) == {"8" if engine == "libaio" else "1"}
    assert values["slowdown"] > 0
    assert 1 / 3 <= values["fairness"] <= 1
    shares = [float(text.rstrip("k/s")) for text in sample.evidence["neighbours"].split(", ")]
    if "k" not in sample.evidence["neighbours"]:
        assert values["fairness"] == pytest.approx(jain(shares), abs=0.02)
    assert sample.ios == pytest.approx(sum(each.count for each in sample.operations.values()), abs=2 * 50)


def test_a_sweep_measures_every_value(directory):
    given = {"over": "block_size", "values": ["4KiB", "64KiB"], "direction": "write"}
    sample = measured(SWEEP, directory, given, SCALE)
    assert of(sample, "bs") == ["4096", "65536"]
    assert of(sample, "runtime") == ["300ms", "300ms"]
    assert len(set(of(sample, "randseed"))) == 2
    values = sample.values
    assert values["peak_iops"] == max(values["block_size_4096_iops"], values["block_size_65536_iops"])
    assert {name.rpartition("_")[2] for name in values if name.startswith("block_size_65536_")} == {
        "bandwidth", "iops", "mean", "p50", "p99",
    }  # fmt: skip
    assert sample.evidence["curve"].splitlines()[2].startswith("64KiB ")


@pytest.mark.parametrize(
    ("given", "option", "values"),
    [
        (
            {"over": "queue_depth", "values": [1, 8], "access": "random", "block_size": "4KiB"},
            "iodepth",
            ["1", "8"],
        ),
        ({"over": "jobs", "values": [1, 2], "block_size": "64KiB"}, "numjobs", ["1", "2"]),
    ],
)
def test_a_sweep_goes_over_the_parameter_that_is_named(directory, given, option, values):
    assert of(measured(SWEEP, directory, given, SCALE), option) == values


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"values": [4096, 512]}, "do not ascend"),
        ({"values": [4096, 5000]}, "5000 is not a power of two"),
        ({"over": "jobs", "values": [256, 512]}, "512 is not a power of two, or above 256"),
        ({"over": "jobs", "jobs": 4}, "the sweep is over it"),
        ({"values": [4096]}, "at least 2"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        SWEEP.Options.model_validate(given)


def test_the_parameters_of_a_sweep_have_its_values():
    parameters = SWEEP.parameters(SWEEP.Options(over="block_size"))
    assert parameters["values"] == "4KiB,16KiB,64KiB,256KiB,1MiB"
    assert "block_size" not in parameters
