"""storagetest compare: rows, verdicts, widths, and exit codes by the command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.cli import main
from storagetest.report.baseline import save
from storagetest.report.jsonl import JsonlReporter

AROUND = [1.0, 0.99, 1.01, 1.005, 0.995]


def scaled(record, factor: float, *, runs: int = 5, started: float = 0.0):
    """The record with ``runs`` repeats whose iops lie around ``factor`` times 1000."""
    sample = record.run.samples[0]
    samples = tuple(replace(sample, values={"iops": 1000 * factor * each}) for each in AROUND[:runs])
    return replace(record, run=replace(record.run, samples=samples, started=started))


def results(path, *records):
    for record in records:
        JsonlReporter(path).on_record(record)
    return str(path)


@pytest.mark.parametrize(
    ("factor", "status", "word"), [(1.0, 0, "~"), (1.2, 0, "better"), (0.8, 1, "worse"), (0.999, 0, "~")]
)
def test_the_exit_status_shows_whether_a_metric_is_worse(make_record, tmp_path, capsys, factor, status, word):
    a = results(tmp_path / "a.jsonl", scaled(make_record(), 1.0))
    b = results(tmp_path / "b.jsonl", scaled(make_record(), factor))
    assert main(["compare", a, b]) == status
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert out[1].rstrip().endswith(word)


def test_lines_fit_a_hundred_columns_whatever_the_case_is_called(make_record, tmp_path, capsys):
    record = make_record(variant="nfs-" + "very-" * 40 + "long")
    a = results(tmp_path / "a.jsonl", record)
    b = results(tmp_path / "b.jsonl", record)
    main(["compare", a, b])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(record.run.metrics)
    assert max(map(len, lines)) <= 100


def test_three_runs_a_side_are_reported_as_too_few(make_record, tmp_path, capsys):
    a = results(tmp_path / "a.jsonl", scaled(make_record(), 1.0, runs=3))
    b = results(tmp_path / "b.jsonl", scaled(make_record(), 0.5, runs=3))
    assert main(["compare", a, b]) == 2
    output = capsys.readouterr()
    assert "too few runs" in output.out
    assert "four runs each" in output.err


def test_runs_of_the_same_case_are_pooled(make_record, tmp_path):
    a = results(tmp_path / "a.jsonl", *[scaled(make_record(), 1.0, runs=3)] * 2)
    b = results(tmp_path / "b.jsonl", *[scaled(make_record(), 0.5, runs=3)] * 2)
    assert main(["compare", a, b]) == 1


def test_runs_without_a_common_case_are_reported(make_record, tmp_path, capsys):
    a = results(tmp_path / "a.jsonl", make_record())
    b = results(tmp_path / "b.jsonl", make_record(variant="smb-v3.1.1"), make_record(variant="smb-v2.1"))
    assert main(["compare", a, b]) == 2
    stderr = capsys.readouterr().err
    assert "1 case in A only" in stderr
    assert "2 cases in B only" in stderr
    assert "nothing could be compared" in stderr


def test_invalid_runs_are_left_out_and_counted(make_record, tmp_path, capsys):
    record = scaled(make_record(), 0.1)
    invalid = replace(record, run=replace(record.run, invalid=("the client was the bottleneck",)))
    a = results(tmp_path / "a.jsonl", scaled(make_record(), 1.0))
    b = results(tmp_path / "b.jsonl", scaled(make_record(), 1.0), invalid)
    assert main(["compare", a, b]) == 0
    assert "1 INVALID run of B left out" in capsys.readouterr().err


def test_a_baselines_noise_floor_holds(make_record, tmp_path, capsys):
    base = tmp_path / "base.json"
    for day, factor in enumerate((1.0, 0.85)):
        save(base, [scaled(make_record(), factor, started=day)])
    b = results(tmp_path / "b.jsonl", scaled(make_record(), 0.85))
    assert main(["compare", str(base), b]) == 0
    worse = results(tmp_path / "c.jsonl", scaled(make_record(), 0.5))
    assert main(["compare", str(base), worse]) == 1


def test_a_floor_can_be_given(make_record, tmp_path):
    a = results(tmp_path / "a.jsonl", scaled(make_record(), 1.0))
    b = results(tmp_path / "b.jsonl", scaled(make_record(), 0.9))
    assert main(["compare", a, b]) == 1
    assert main(["compare", a, b, "--floor", "15"]) == 0
    with pytest.raises(SystemExit) as caught:
        main(["compare", a, b, "--floor", "-1"])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("once upon a time\n", "b.jsonl:1: damaged"),
        ('{"schema":"storagetest.result/9"}\n', "b.jsonl:1: schema is 'storagetest.result/9'"),
        (None, "b.jsonl: No such file"),
        ("", None),
    ],
)
def test_a_bad_file_is_named_and_nothing_is_compared(make_record, tmp_path, capsys, text, message):
    a = results(tmp_path / "a.jsonl", make_record())
    if text is not None:
        (tmp_path / "b.jsonl").write_text(text)
    assert main(["compare", a, str(tmp_path / "b.jsonl")]) == 2
    assert (message or "nothing could be compared") in capsys.readouterr().err


def test_a_line_that_a_crash_cut_off_is_left_out(make_record, tmp_path, capsys):
    a = results(tmp_path / "a.jsonl", scaled(make_record(), 1.0))
    b = results(tmp_path / "b.jsonl", scaled(make_record(), 1.0))
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write('{"schema":"storagetest.result/2","nodeid":"x')
    assert main(["compare", a, b]) == 0
    assert "cut off" in capsys.readouterr().err
