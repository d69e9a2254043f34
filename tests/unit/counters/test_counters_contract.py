"""The contract of every registered source of counters."""

import inspect
import re
from fnmatch import fnmatchcase

import pytest

from storagetest.counters.base import CounterSource, Snapshot, all_sources, sources, to_series

ALL = all_sources()
every_source = pytest.mark.parametrize("source", ALL, ids=lambda source: source.name)


def test_the_promised_sources_are_there():
    assert {"block", "cifs", "cpu", "iscsi", "lustre", "mountstats", "nic", "nvme"} <= set(sources.all())


@every_source
def test_a_source_has_a_description(source: CounterSource):
    assert re.fullmatch(r"[a-z][a-z0-9]*", source.name)
    assert (type(source).__doc__ or "").strip()
    assert (inspect.getmodule(type(source)).__doc__ or "").strip()
    assert all(path.startswith(("/proc/", "/sys/")) for path in source.paths)
    assert set(source.lines) <= set(source.paths), "lines are kept by the very path, not by a glob"


@every_source
def test_its_example_is_of_its_paths_and_has_readings(source: CounterSource):
    for path in source.example:
        assert any(fnmatchcase(path, glob) for glob in (*source.paths, *source.commands)), path
    for path, starts in source.lines.items():
        assert any(line.startswith(starts) for line in source.example[path].splitlines())
    readings = source.parse(source.example)
    assert readings
    for name, reading in readings.items():
        assert reading.value >= 0, name
        assert not re.search(r"\d+\.\d+\.\d+\.\d+", name)


@every_source
def test_nothing_and_rubbish_give_nothing_and_no_error(source: CounterSource):
    assert source.parse({}) == {}
    for text in ("", "\n", "\0\x01", "x" * 1000, "1", "-1 -1", ": : :", "Tcp:\nTcp:", "cpu"):
        source.parse(dict.fromkeys(source.example, text))


@every_source
def test_an_example_cut_off_anywhere_is_no_error(source: CounterSource):
    for path, text in source.example.items():
        for end in range(len(text)):
            source.parse({**source.example, path: text[:end]})


@every_source
def test_standing_still_is_a_series_of_zeros_at_most(source: CounterSource):
    moments = [Snapshot(float(second), source.example) for second in range(3)]
    for series in to_series(source, "here", moments):
        assert series.host == "here"
        assert series.source == source.name
        assert list(series.times) == sorted(series.times)
