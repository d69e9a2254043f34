"""What every registered workload keeps to, run once for real on a directory, and on a device where it can."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from storagetest.config.thresholds import read_key
from storagetest.measure.run import METRICS
from storagetest.verdict import parse_threshold
from storagetest.workloads.base import LoadSize, Workload, workloads

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
