"""What every workload keeps to, and its options."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from storagetest.config.thresholds import read_key, read_parameter
from storagetest.errors import ConfigError
from storagetest.measure.run import METRICS
from storagetest.verdict import parse_threshold
from storagetest.workloads.base import LoadSize, Workload, workloads
from storagetest.workloads.metadata import OPERATIONS

SCALE = LoadSize(size=4 << 20, ramp=0, runtime=0.6)
SMALL: dict[str, dict[str, Any]] = {
    "boot-storm": {"vms": 2, "think": 0},
    "multi-user": {"levels": [1, 2]},
    "metadata": {"processes": 2},
}
"""What makes an example short."""

each = pytest.mark.parametrize("kind", workloads.all().values(), ids=lambda kind: kind.name)


def needs(kind: type[Workload[Any]]) -> None:
    for tool in kind.tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed here")


@each
def test_workload_has_its_metadata(kind):
    assert re.fullmatch(r"[a-z][a-z0-9-]*", kind.name)
    assert (kind.__doc__ or "").strip()
    assert kind.source
    assert not kind.source.endswith(".")
    assert kind.tools, "no version of any program is kept with its results"
    for name, field in kind.Options.model_fields.items():
        assert field.description, f"{name} is not described"


@each
def test_its_metrics_can_be_gated(kind):
    assert set(kind.headline) <= set(kind.metrics)
    assert "client_cpu" in kind.metrics
    for name, metric in kind.metrics.items():
        assert metric.name == name
        op = ">=" if metric.better.value == "higher" else "<="
        bound = {"s": "5ms", "B/s": "1MiB/s", "ratio": "50%"}.get(metric.unit.value, "5")
        assert parse_threshold(f"{name} {op} {bound}", kind.metrics).metric is metric
        if metric.quantile is not None and metric.name not in METRICS:
            assert metric.operation, f"{name} is a percentile of nothing that is counted"


@each
def test_its_example_loads_and_shows_in_its_title_and_in_the_brackets_of_a_threshold(kind):
    options = kind.Options.model_validate(kind.example)
    load = kind()
    title = load.title(options)
    assert title.startswith(kind.name)
    assert len(title.split()) >= 1 + len(kind.example)
    assert set(kind.example) <= set(load.parameters(options)) <= set(kind.Options.model_fields)
    assert all(value is None or isinstance(value, bool | int | float | str)
               for value in load.parameters(options).values())  # fmt: skip
    name = next(iter(kind.example))
    assert read_key(f"{kind.name}[{name}=1]", {kind.name: kind})[1] == {name: "1"}


@each
def test_an_option_that_it_has_not_got_is_refused(kind):
    with pytest.raises(ValidationError, match="no_such_option"):
        kind.Options.model_validate({**kind.example, "no_such_option": 1})


@each
@pytest.mark.parametrize("where", ["directory", "device"])
def test_workload_measures_its_metrics_and_leaves_only_the_data_set(kind, where, request):
    needs(kind)
    attachment = request.getfixturevalue(where)
    if where == "device" and "filesystem" in kind.needs:
        pytest.skip("runs on file systems only")
    load = kind()
    options = kind.Options.model_validate({**kind.example, **SMALL.get(kind.name, {})})
    before = Path(attachment.path).stat().st_size
    if load.dataset(options, SCALE) is not None:
        load.fill(attachment, options, SCALE)
    filled = sorted(Path(attachment.path).glob("*")) if where == "directory" else []
    sample = load.measure(attachment, options, SCALE)
    assert set(sample.values) <= set(kind.metrics)
    assert set(kind.headline) <= set(sample.values)
    assert sample.seconds > 0
    assert sample.ios > 0
    for name in sample.values:
        metric = kind.metrics[name]
        if metric.quantile is not None:
            histogram = sample.histogram(metric)
            assert histogram is not None, f"{name} has no histogram"
            assert sample.values[name] == histogram.percentile(metric.quantile)
    if where == "directory":
        assert sorted(Path(attachment.path).glob("*")) == filled
    else:
        assert Path(attachment.path).stat().st_size == before
        assert Path(attachment.path).read_bytes()[SCALE.size + (2 << 20) :] == b"x" * (2 << 20)


REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "bonnie": [
        ({"chunk_size": 10_000}, "is not a power of two"),
        ({"chunk_size": "2MiB"}, "less than or equal to 1048576"),
        ({"char_io": "stdio"}, "buffered"),
        ({"seekers": 0}, "greater than or equal to 1"),
    ],
    "boot-storm": [
        ({"vms": 0}, "greater than or equal to 1"),
        ({"think": "11s"}, "less than or equal to 10"),
        ({"clone_size": 1_500_000}, "is not a multiple of 1MiB"),
        ({"interval": 0}, "greater than or equal to 0.01"),
    ],
    "copy": [
        ({"kind": "medium"}, "large"),
        ({"depth": 8, "width": 100}, "at most 10000 directories"),
        ({"block_size": 100}, "greater than or equal to 512"),
        ({"method": "scp"}, "client"),
    ],
    "database": [
        ({"page_size": 1000}, "512"),
        ({"page_workers": 0}, "greater"),
        ({"read_percent": 101}, "less than"),
    ],
    "metadata": [
        ({"operations": ["chown"]}, "operations"),
        ({"operations": []}, "at least 1"),
        ({"processes": 0}, "greater than or equal to 1"),
        ({"files": 2}, "too few for 4 processes"),
        ({"files": 100, "files_per_directory": 10}, "give one of them"),
        ({"depth": 10, "width": 10}, r"width \*\* depth is 10000000000: at most"),
        ({"file_size": "2MiB"}, "less than or equal to 1048576"),
    ],
    "open-loop": [
        ({"rate": 0}, "greater than 0"),
        ({"process": "waves"}, "poisson"),
        ({"block_size": 1000}, "a multiple of 512"),
        ({"workers": 0}, "greater than or equal to 1"),
    ],
    "postmark": [
        ({"low": 600, "high": 500}, "low must not be the larger"),
        ({"read_bias": -1, "create_bias": -1}, "nothing is left to do"),
        ({"read_bias": 11}, "less than or equal to 10"),
        ({"whole": True}, "set transactions too"),
        ({"files": 2, "processes": 4}, "too few for 4 processes"),
        ({"high": "2MiB"}, "less than or equal to 1048576"),
    ],
    "streaming": [
        ({"frame_size": 1000}, "4096"),
        ({"frames_per_second": 0}, "greater than 0"),
        ({"streams": 0}, "greater than or equal to 1"),
        ({"deadline": 0}, "greater than 0"),
    ],
    "multi-user": [
        ({"levels": [4, 1]}, "4, 1 do not ascend"),
        ({"levels": [2, 2]}, "do not ascend"),
        ({"levels": [3]}, "3"),
        ({"levels": []}, "at least 1"),
        ({"read_percent": 101}, "less than or equal to 100"),
    ],
    "noisy-neighbour": [({"neighbours": 1}, "greater than or equal to 2")],
    "sequential": [({"direction": "both"}, "read")],
    "small-random-read": [
        ({"cache": "cold"}, "direct: true bypasses"),
        ({"cache": "hot", "direct": False}, "cold"),
    ],
    "small-random-write": [
        ({"direct": False}, "has one I/O in flight"),
        ({"engine": "psync"}, "psync has one I/O in flight a job, not 8"),
        ({"block_size": 1000}, "is not a multiple of 512"),
        ({"block_size": 0}, "is not a multiple of 512"),
        ({"block_size": "4K"}, "4KiB"),
        ({"queue_depth": 0}, "greater than or equal to 1"),
        ({"jobs": 0}, "greater than or equal to 1"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"engine": "sync"}, "libaio"),
        ({"engine": "mmap", "queue_depth": 1}, "uses the page cache"),
        ({"engine": "mmap", "direct": False}, "mmap has one I/O in flight a job, not 8"),
    ],
}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [(name, *row) for name, rows in REFUSED.items() for row in rows],
    ids=lambda value: str(value) if isinstance(value, str | dict) else None,
)
def test_options_that_make_no_sense_are_refused(name, options, message):
    with pytest.raises(ValidationError, match=message):
        workloads.get(name).Options.model_validate(options)


@pytest.mark.parametrize(
    ("name", "options", "shown"),
    [
        ("bonnie", {}, {"chunk_size": "8KiB"}),
        ("boot-storm", {}, {"clone_size": "1MiB"}),
        ("copy", {}, {"block_size": "1MiB"}),
        ("metadata", {"file_size": 4096}, {"file_size": "4KiB"}),
        ("metadata", {}, {"operations": ",".join(OPERATIONS)}),
        ("postmark", {}, {"write_block": "512B"}),
    ],
)
def test_the_result_shows_sizes_with_units_and_lists_with_commas(name, options, shown):
    workload = workloads.get(name)
    assert workload().parameters(workload.Options.model_validate(options)).items() >= shown.items()


def test_the_result_shows_a_loads_own_options_first():
    workload = workloads.get("small-random-write")
    assert list(workload().parameters(workload.Options()).items()) == [
        ("block_size", "4KiB"), ("queue_depth", 8), ("jobs", 1), ("direct", True), ("engine", "libaio"),
        ("sync", "none"), ("seed", 1),
    ]  # fmt: skip


def test_a_list_is_a_parameter_in_the_brackets_of_a_key():
    kind, given = read_key("multi-user[levels=[1,4,16],read_percent=0]", workloads.all())
    assert given == {"levels": "[1,4,16]", "read_percent": "0"}
    assert read_parameter(kind, "levels", given["levels"]) == (1, 4, 16)
    with pytest.raises(ConfigError, match="is not a workload, or workload"):
        read_key("multi-user[levels=[1,[4]]]", workloads.all())
